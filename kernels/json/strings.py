"""Strings of JSON: where they end, whether they are text, and what their escapes stand for.

There is no kernel here. Places are ``u64`` and lie before `stop`, the end of the row.
"""

from __future__ import annotations

from bowstring.kernels.json import tree
from bowstring.kernels.json.numbers import byte_at
from bowstring.kernels.types import i64, u8, u64
from bowstring.kernels.validation.text import is_text
from bowstring.kernels.words import HIGH, bytes_at, escaped_bytes, load_word, store_word

# Times a word with one bit, the lowest of byte k, this has k in its highest byte.
WHICH = u64(0x0001020304050607)

HALVES = u64(0xD800)
LOWER_HALVES = u64(0xDC00)
BEHIND_HALVES = u64(0xE000)
NO_CODE = u64(0xFFFFFFFF)
BROKEN_CODE = u64(0xFFFFFFFE)

WORD_NULL = u64(int.from_bytes(b"null", "little"))
WORD_TRUE = u64(int.from_bytes(b"true", "little"))
WORD_FALS = u64(int.from_bytes(b"fals", "little"))

# The first byte of the encoding.
NULL = u64(0)
TRUE = u64(1 << 2)
FALSE = u64(2 << 2)
SHORT = u64(1)
LONG = u64(16 << 2)
LONGEST_SHORT = u64(63)


def string_end(data, start, stop):
    """Return where the string that begins at `start`, after its quote, ends, how many bytes its escapes save,
    and a status. The end is its quote or the error; `start` itself if it is not UTF-8.
    """
    size = u64(len(data))
    at = start
    seen = u64(0)
    dropped = u64(0)
    status = tree.END
    while at < stop:
        word = load_word(data, at) if at + 8 <= size else bytes_at(data, at, size - at)
        marks = escaped_bytes(word)
        if marks == 0:
            seen |= word
            at += 8
        else:
            lowest = marks & (~marks + 1)
            k = ((lowest >> 7) * WHICH) >> 56
            seen |= word & ((1 << (k << 3)) - 1)
            at += k
            if at < stop:
                byte = u64(data[at])
                if byte == ord('"'):
                    status = tree.READ
                    break
                if byte != ord("\\"):
                    status = tree.CONTROL
                    break
                code, length = escape(data, at, stop)
                if code >= BROKEN_CODE:
                    status = tree.ESCAPE if code == NO_CODE else tree.SURROGATE
                    break
                dropped += length - encoded_size(code)
                at += length
    if seen & HIGH != 0 and status == tree.READ and not is_text(data, i64(start), i64(at)):
        status = tree.NO_TEXT
        at = start
    return at, dropped, status


def encoded_size(code):
    """Return how many bytes a character takes in UTF-8."""
    size = u64(1)
    if code >= 0x80:
        size = u64(2)
        if code >= 0x800:
            size = u64(3)
            if code >= 0x10000:
                size = u64(4)
    return size


def escape(data, at, stop):
    """Return the character of an escape, and its length; :data:`NO_CODE` or :data:`BROKEN_CODE` where it is none.

    `at` is the place of its backslash.
    """
    code = NO_CODE
    length = u64(2)
    letter = u64(data[at + 1]) if at + 1 < stop else u64(0)
    if letter == ord("u"):
        code = hexadecimal(data, at + 2, stop)
        length = u64(6)
        if HALVES <= code < BEHIND_HALVES:
            other = NO_CODE
            after = at + 6
            if after + 1 < stop and u64(data[after]) == ord("\\") and u64(data[after + 1]) == ord("u"):
                other = hexadecimal(data, after + 2, stop)
            if code < LOWER_HALVES <= other < BEHIND_HALVES:
                code = 0x10000 + ((code & 0x3FF) << 10) + (other & 0x3FF)
                length = u64(12)
            else:
                code = BROKEN_CODE
    elif letter == ord('"'):
        code = u64(ord('"'))
    elif letter == ord("\\"):
        code = u64(ord("\\"))
    elif letter == ord("/"):
        code = u64(ord("/"))
    elif letter == ord("n"):
        code = u64(ord("\n"))
    elif letter == ord("t"):
        code = u64(ord("\t"))
    elif letter == ord("r"):
        code = u64(ord("\r"))
    elif letter == ord("b"):
        code = u64(ord("\b"))
    elif letter == ord("f"):
        code = u64(ord("\f"))
    return code, length


def hexadecimal(data, at, stop):
    """Return a number of four hexadecimal digits, or :data:`NO_CODE`."""
    code = NO_CODE
    if at + 4 <= stop:
        code = u64(0)
        for k in range(4):
            byte = u64(data[at + u64(k)])
            digit = byte - ord("0")
            letter = (byte | 0x20) - ord("a") + 10
            if digit >= 10:
                digit = letter
                if letter < 10 or letter >= 16:
                    code = NO_CODE
            if code != NO_CODE:
                code = (code << 4) | digit
    return code


def copy(data, source, out, target, size):
    """Copy bytes that lie in both arrays, eight at a time, and no byte beside them."""
    done = u64(0)
    if size >= 8:
        while done + 8 <= size:
            store_word(out, target + done, load_word(data, source + done))
            done += 8
        if done < size:
            done = size - 8
            store_word(out, target + done, load_word(data, source + done))
            done = size
    while done < size:
        out[target + done] = data[source + done]
        done += 1


def unescape(data, start, stop, out, target, size):
    """Write the `size` bytes that a string with escapes stands for, and no more."""
    at = start
    done = target
    end = target + size
    while at < stop and done < end:
        byte = u64(data[at])
        if byte != ord("\\"):
            out[done] = u8(byte)
            done += 1
            at += 1
        else:
            code, length = escape(data, at, stop)
            width = encoded_size(code)
            at += length
            if done + width <= end:
                if width == 1:
                    out[done] = u8(code)
                else:
                    lead = u64(0xC0)
                    if width == 3:
                        lead = u64(0xE0)
                    elif width == 4:
                        lead = u64(0xF0)
                    shift = (width - 1) * 6
                    out[done] = u8((lead | code >> shift) & 0xFF)
                    k = u64(1)
                    while k < width:
                        shift -= 6
                        out[done + k] = u8(0x80 | ((code >> shift) & 0x3F))
                        k += 1
            done += width


def literal(data, at, stop):
    """Return where null, true or false ends, a status, and the node's head."""
    word = bytes_at(data, at, min(stop - at, u64(4)))
    end = at
    status = tree.READ
    header = NULL
    if word == WORD_NULL:
        end = at + 4
    elif word == WORD_TRUE:
        end = at + 4
        header = TRUE
    elif word == WORD_FALS and byte_at(data, at + 4, stop) == ord("e"):
        end = at + 5
        header = FALSE
    else:
        status = tree.UNEXPECTED
    return end, status, tree.LITERAL | header << 8


def text(data, at, stop):
    """Return where a string ends, a status, and the node's head, body and size."""
    end, dropped, status = string_end(data, at + 1, stop)
    length = end - at - 1 - dropped
    kind = tree.PLAIN if dropped == 0 else tree.ESCAPED
    header = SHORT | length << 2
    size = length + 1
    if length > LONGEST_SHORT:
        header = LONG
        size = length + 5
    if status == tree.READ:
        end += 1
    return end, status, kind | header << 8, at + 1, size
