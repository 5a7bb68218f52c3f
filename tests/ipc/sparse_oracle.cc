// What Arrow C++ reads and writes as sparse tensors, for Python, which pyarrow leaves out.
// Built by test_sparse_format.py against the headers and libraries inside pyarrow.

#include <memory>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/python/pyarrow.h>
#include <arrow/sparse_tensor.h>

namespace py = arrow::py;

static PyObject* Fail(const arrow::Status& status) {
  PyErr_SetString(PyExc_ValueError, status.ToString().c_str());
  return nullptr;
}

template <typename Tensor>
static arrow::Result<std::shared_ptr<arrow::SparseTensor>> Any(arrow::Result<Tensor> result) {
  ARROW_ASSIGN_OR_RAISE(auto tensor, std::move(result));
  return std::static_pointer_cast<arrow::SparseTensor>(tensor);
}

static arrow::Result<std::shared_ptr<arrow::SparseTensor>> Unwrap(PyObject* object) {
  if (py::is_sparse_coo_tensor(object)) return Any(py::unwrap_sparse_coo_tensor(object));
  if (py::is_sparse_csr_matrix(object)) return Any(py::unwrap_sparse_csr_matrix(object));
  if (py::is_sparse_csc_matrix(object)) return Any(py::unwrap_sparse_csc_matrix(object));
  return Any(py::unwrap_sparse_csf_tensor(object));
}

static arrow::Result<std::shared_ptr<arrow::Buffer>> Written(PyObject* object) {
  ARROW_ASSIGN_OR_RAISE(auto tensor, Unwrap(object));
  ARROW_ASSIGN_OR_RAISE(auto sink, arrow::io::BufferOutputStream::Create());
  int32_t metadata_length = 0;
  int64_t body_length = 0;
  ARROW_RETURN_NOT_OK(
      arrow::ipc::WriteSparseTensor(*tensor, sink.get(), &metadata_length, &body_length));
  return sink->Finish();
}

static PyObject* Write(PyObject*, PyObject* object) {
  auto buffer = Written(object);
  return buffer.ok() ? py::wrap_buffer(*buffer) : Fail(buffer.status());
}

static PyObject* Read(PyObject*, PyObject* object) {
  auto buffer = py::unwrap_buffer(object);
  if (!buffer.ok()) return Fail(buffer.status());
  arrow::io::BufferReader source(*buffer);
  auto result = arrow::ipc::ReadSparseTensor(static_cast<arrow::io::InputStream*>(&source));
  if (!result.ok()) return Fail(result.status());
  switch ((*result)->format_id()) {
    case arrow::SparseTensorFormat::COO:
      return py::wrap_sparse_coo_tensor(std::static_pointer_cast<arrow::SparseCOOTensor>(*result));
    case arrow::SparseTensorFormat::CSR:
      return py::wrap_sparse_csr_matrix(std::static_pointer_cast<arrow::SparseCSRMatrix>(*result));
    case arrow::SparseTensorFormat::CSC:
      return py::wrap_sparse_csc_matrix(std::static_pointer_cast<arrow::SparseCSCMatrix>(*result));
    default:
      return py::wrap_sparse_csf_tensor(std::static_pointer_cast<arrow::SparseCSFTensor>(*result));
  }
}

static PyMethodDef methods[] = {{"write", Write, METH_O, ""}, {"read", Read, METH_O, ""}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "sparse_oracle", "", -1, methods};

PyMODINIT_FUNC PyInit_sparse_oracle() {
  return py::import_pyarrow() == 0 ? PyModule_Create(&module) : nullptr;
}
