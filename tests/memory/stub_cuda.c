// CUDA's driver without a device, for test_real_bindings.py: CUDA's own header, memory of the host, and every argument
// checked, so that what is called through cuda.bindings is what the header declares.

#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MUST(condition)                                          \
  do {                                                           \
    if (!(condition)) {                                          \
      fprintf(stderr, "%s: not %s\n", __func__, #condition);     \
      return CUDA_ERROR_INVALID_VALUE;                           \
    }                                                            \
  } while (0)
// What may end a capture of another thread, unless this one is in a mode that leaves it alone.
#define BESIDE_CAPTURES MUST(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
#define IN_CONTEXT(device) BESIDE_CAPTURES; MUST(depth && stack[depth - 1] == context_of(device))
#define IN_SOME_CONTEXT BESIDE_CAPTURES; MUST(depth)
#define IS_EVENT(event) MUST((uintptr_t)(event) >> 32 == 0x7f00)
#define IS_STREAM(stream) MUST((uintptr_t)(stream) < 100)

enum { DEVICES = 2, GRANULARITY = 2 << 20 };

static _Thread_local CUcontext stack[8];
static _Thread_local int depth;
static _Thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static int handles, mappings, ranges, nothing_there, captures;
static size_t private_bytes;
static CUstream recorded_on;

// For the test: what was not given back, and whether addresses are to be unknown from now on.
int stub_held(void) { return 10000 * handles + 100 * mappings + ranges; }
int stub_depth(void) { return depth; }
void stub_forget_addresses(int forget) { nothing_there = forget; }
void stub_capture(int begin) { captures = begin; }  // a graph, on stream 7, which the legacy one waits for

static CUcontext context_of(int device) { return (CUcontext)(uintptr_t)(0x7000 + device); }
static CUmemGenericAllocationHandle handle_of(int fd) { return 0xfeed00000000ull + fd; }
static int fd_of(CUmemGenericAllocationHandle handle) { return handle >> 32 == 0xfeed ? (int)(uint32_t)handle : -1; }

static int is_wanted(const CUmemAllocationProp* wanted) {
  CUmemAllocationProp expected;
  memset(&expected, 0, sizeof expected);
  expected.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  expected.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  expected.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  expected.location.id = wanted->location.id;
  expected.allocFlags.gpuDirectRDMACapable = wanted->location.id == 1;
  return (unsigned)wanted->location.id < DEVICES && !memcmp(wanted, &expected, sizeof expected);
}

CUresult cuInit(unsigned flags) {
  MUST(!flags);
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = DEVICES;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if ((unsigned)ordinal >= DEVICES) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  memset(uuid, 0, sizeof *uuid);  // not to be cut at a zero
  uuid->bytes[1] = (char)(device + 1);
  uuid->bytes[15] = (char)0xff;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  memset(name, 'x', length);
  snprintf(name, length, "Stub %d", device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  MUST((unsigned)device < DEVICES);
  *value = (attribute == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED && device == 1) ||
           attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
           attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  MUST(device != peer);
  *can = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  MUST(depth < 8 && (context == context_of(0) || context == context_of(1)));
  stack[depth++] = context;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  IN_SOME_CONTEXT;
  *context = stack[--depth];
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
  IN_SOME_CONTEXT;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* wanted,
                                       CUmemAllocationGranularity_flags option) {
  MUST(is_wanted(wanted) && option == CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  IN_CONTEXT(wanted->location.id);
  *bytes = GRANULARITY;
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* wanted,
                     unsigned long long flags) {
  MUST(is_wanted(wanted) && !flags && bytes && bytes % GRANULARITY == 0);
  IN_CONTEXT(wanted->location.id);
  int fd = memfd_create("stub", 0);
  if (fd < 0 || ftruncate(fd, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = handle_of(fd);
  handles++;
  return CUDA_SUCCESS;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* found, CUmemGenericAllocationHandle handle) {
  MUST(fd_of(handle) >= 0);
  memset(found, 0, sizeof *found);
  found->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  found->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  found->allocFlags.gpuDirectRDMACapable = 1;
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* shared, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType kind,
                                      unsigned long long flags) {
  BESIDE_CAPTURES;
  MUST(kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !flags);
  return (*(int*)shared = dup(fd_of(handle))) < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;  // inheritable, as theirs
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shared,
                                        CUmemAllocationHandleType kind) {
  BESIDE_CAPTURES;
  MUST(kind == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  int fd = dup((int)(uintptr_t)shared);  // the number itself, not where it is
  MUST(fd >= 0);
  *handle = handle_of(fd);
  handles++;
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  BESIDE_CAPTURES;
  MUST(!close(fd_of(handle)));
  handles--;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr near,
                             unsigned long long flags) {
  BESIDE_CAPTURES;
  MUST(!alignment && !near && !flags && bytes % GRANULARITY == 0);
  *address = (CUdeviceptr)mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ranges++;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  BESIDE_CAPTURES;
  MUST(!munmap((void*)address, bytes));
  ranges--;
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  BESIDE_CAPTURES;
  MUST(!offset && !flags);
  MUST(mmap((void*)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd_of(handle), 0) != MAP_FAILED);
  mappings++;
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  MUST(count == 1 && access->location.type == CU_MEM_LOCATION_TYPE_DEVICE);
  IN_CONTEXT(access->location.id);
  MUST(access->flags == CU_MEM_ACCESS_FLAGS_PROT_READ || access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  int write = access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_WRITE : 0;
  MUST(!mprotect((void*)address, bytes, PROT_READ | write));
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  BESIDE_CAPTURES;
  MUST(mmap((void*)address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
  mappings--;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  IN_SOME_CONTEXT;
  MUST(address);
  for (unsigned i = 0; i < count; i++) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:  // 0 is none of the enumeration's
        *(unsigned*)data[i] = nothing_there ? 0 : CU_MEMORYTYPE_DEVICE;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int*)data[i] = nothing_there ? -2 : 1;
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long*)data[i] = nothing_there ? 0 : 0x123456789abull;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned char*)data[i] = 0;
        break;
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(void**)data[i] = nothing_there == 2 ? (void*)0x99 : NULL;
        break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned char*)data[i] = !nothing_there;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}
CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  IN_SOME_CONTEXT;
  *base = address & ~0xfffull;
  *bytes = 1ull << 40;
  return CUDA_SUCCESS;
}
CUresult cuMemGetInfo(size_t* free, size_t* total) {
  IN_SOME_CONTEXT;
  *free = 5ull << 32;
  *total = 6ull << 32;
  return CUDA_SUCCESS;
}

// The bytes of a handle: zeros among them, then the address.
CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  IN_SOME_CONTEXT;
  for (int i = 0; i < CU_IPC_HANDLE_SIZE; i++) handle->reserved[i] = (char)(i * 5);
  memcpy(handle->reserved + 8, &address, 8);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  IN_SOME_CONTEXT;
  MUST(flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS && !handle.reserved[0]);
  for (int i = 16; i < CU_IPC_HANDLE_SIZE; i++) MUST(handle.reserved[i] == (char)(i * 5));
  memcpy(address, handle.reserved + 8, 8);
  return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  IN_SOME_CONTEXT;
  MUST(address);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  IN_SOME_CONTEXT;
  MUST(flags == CU_MEMHOSTALLOC_PORTABLE);
  return (*memory = aligned_alloc(4096, bytes)) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void* memory) {
  IN_SOME_CONTEXT;
  free(memory);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr target, const void* source, size_t bytes, CUstream stream) {
  IN_SOME_CONTEXT;
  IS_STREAM(stream);
  memcpy((void*)target, source, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoHAsync(void* target, CUdeviceptr source, size_t bytes, CUstream stream) {
  IN_SOME_CONTEXT;
  IS_STREAM(stream);
  memcpy(target, (const void*)source, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr target, CUcontext there, CUdeviceptr source, CUcontext here, size_t bytes,
                           CUstream stream) {
  MUST(there != here && depth && stack[depth - 1] == here);
  IS_STREAM(stream);
  memcpy((void*)target, (const void*)source, bytes);
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* exchanged) {
  CUstreamCaptureMode before = mode;
  mode = *exchanged;
  *exchanged = before;
  return CUDA_SUCCESS;
}
CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  IN_SOME_CONTEXT;
  MUST(flags == CU_STREAM_NON_BLOCKING);
  *stream = (CUstream)2;
  return CUDA_SUCCESS;
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  IN_SOME_CONTEXT;
  IS_STREAM(stream);
  if (captures && stream == CU_STREAM_LEGACY) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = captures && stream == (CUstream)7 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  IN_SOME_CONTEXT;
  *address = (CUdeviceptr)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  private_bytes = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr address) {
  IN_SOME_CONTEXT;
  MUST(!munmap((void*)address, private_bytes));
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  IN_SOME_CONTEXT;
  IS_STREAM(stream);
  IS_EVENT(event);
  MUST(!flags);
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  IN_SOME_CONTEXT;
  MUST(flags == CU_EVENT_DISABLE_TIMING || flags == (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
  *event = (CUevent)(0x7f0000000000ull + flags);
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  IN_SOME_CONTEXT;
  IS_EVENT(event);
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  IN_SOME_CONTEXT;
  IS_EVENT(event);
  IS_STREAM(stream);
  recorded_on = stream;
  return CUDA_SUCCESS;
}
CUresult cuEventQuery(CUevent event) {
  IN_SOME_CONTEXT;
  IS_EVENT(event);
  return recorded_on == (CUstream)2 ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;  // the one stream that is busy
}
CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  IN_SOME_CONTEXT;
  IS_EVENT(event);
  for (int i = 0; i < CU_IPC_HANDLE_SIZE; i++) handle->reserved[i] = (char)(i * 3);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  IN_SOME_CONTEXT;
  for (int i = 0; i < CU_IPC_HANDLE_SIZE; i++) MUST(handle.reserved[i] == (char)(i * 3));
  *event = (CUevent)(0x7f0000000000ull + 99);
  return CUDA_SUCCESS;
}

// How the bindings find all of these: by the name without its version.
#undef cuGetProcAddress
CUresult cuGetProcAddress_v2(const char* name, void** found, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* why) {
  static void* self;
  Dl_info us;
  char versioned[200];
  (void)version, (void)flags;
  if (!self && dladdr((void*)cuInit, &us)) self = dlopen(us.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  snprintf(versioned, sizeof versioned, "%s_v2", name);
  *found = dlsym(self, versioned);
  if (!*found) *found = dlsym(self, name);
  if (why) *why = *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
