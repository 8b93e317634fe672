// The files of programs: safetensors files whose metadata hold the graph.
//
//   format          "mytorch program 1", or 2 if the graph has symbols
//   mytorch         the version that wrote the file
//   graph           the text of the graph
//   operators       a line per operator that the graph calls: its name and the hash of its schema
//   signature       JSON: the names of inputs and results, and what is known of the tensors
//   user.KEY        texts of the user
//
// A tensor from outside is stored under its name; its grad, if the graph reads that, under
// "grad:NAME". Tensors that are dense are stored by their values, others by the bytes of their
// memory. Later versions read all that this one writes: keys and values may be added, not changed.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "core/types/errors.h"
#include "dispatcher/table/op.h"
#include "graph/formats/parse.h"
#include "graph/formats/saved.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/version.h"
#include "nlohmann/json.hpp"
#include "nn/serialize/safetensors_header.h"

namespace mytorch::nn::programs {
namespace {

using graph::BufferOrigin;
using graph::GradResult;
using graph::Graph;
using graph::kNoValue;
using graph::Recorded;
using graph::SavedProgram;
using graph::Schemas;
using graph::Span;
using graph::ValueInfo;
using nlohmann::json;

constexpr char kFormat[] = "mytorch program ";
constexpr int kFormatVersion = 1, kSymbolicVersion = 2;
constexpr char kUser[] = "user.";
constexpr char kGradPrefix[] = "grad:";

ValueInfo info_of(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  return {-1, impl.dtype, to_dims(impl.sizes()), to_dims(impl.strides()), impl.offset()};
}

// Returns whether strides are contiguous in some order of the dimensions.
bool is_dense(const ValueInfo& info) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
  for (size_t i = 0; i < info.sizes.size(); ++i) {
    if (info.sizes[i] != 1) dims.emplace_back(info.strides[i], info.sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected = size <= 0 ? 0 : expected * size;
  }
  return expected > 0;
}

// ---- writing ----

class Writer {
 public:
  explicit Writer(const SavedProgram& saved)
      : saved_(saved), needed_(saved.recorded.outside.size()) {
    const Graph& graph = saved.recorded.graph;
    for (const ValueInfo& info : graph.values) {
      const graph::GraphBuffer& buffer = graph.buffers[info.buffer];
      if (buffer.origin != BufferOrigin::kOutside) continue;
      int64_t& needed = needed_.at(static_cast<size_t>(buffer.index));
      needed = std::max(needed, span_of(info).end * element_size(info.dtype));
    }
  }

  void write(const std::string& path) {
    const Recorded& recorded = saved_.recorded;
    json tensors = json::array();
    for (size_t i = 0; i < recorded.outside.size(); ++i) tensors.push_back(outside(i));
    json entries = json::array();
    for (const GradResult& entry : recorded.entry_grads) {
      entries.push_back({{"outside", entry.leaf.index}, {"value", entry.grad}});
    }
    const json signature = {{"inputs", saved_.inputs},
                            {"outputs", saved_.outputs},
                            {"tensors", std::move(tensors)},
                            {"entry_grads", std::move(entries)}};
    std::string operators;
    for (const auto& [name, hash] :
         saved_.text.empty() ? schemas_of(recorded.graph) : saved_.schemas) {
      absl::StrAppend(&operators, name, " ", absl::Hex(hash, absl::kZeroPad16), "\n");
    }
    Metadata metadata = {
        {"format", absl::StrCat(kFormat, saved_.text.empty() ? kFormatVersion : kSymbolicVersion)},
        {"mytorch", MYTORCH_VERSION_STRING},
        {"graph", saved_.text.empty() ? to_text(recorded.graph) : saved_.text},
        {"operators", operators}};
    try {
      metadata["signature"] = signature.dump();
    } catch (const json::exception&) {
      fail(ErrorCode::kValue, "[save] the name of an input, a result or a tensor is not UTF-8");
    }
    for (const auto& [key, value] : saved_.metadata) metadata[kUser + key] = value;
    save_safetensors(path, stored_, metadata);
  }

 private:
  json outside(size_t index) {
    const Recorded& recorded = saved_.recorded;
    const Tensor& tensor = recorded.outside[index];
    json described = store(saved_.state[index], tensor, needed_[index]);
    described["requires_grad"] = tensor.requires_grad();
    for (const GradResult& entry : recorded.entry_grads) {
      if (entry.leaf.index != static_cast<int64_t>(index) || entry.grad == kNoValue) continue;
      const Tensor grad = tensor.grad();
      if (!grad.defined()) {
        fail(ErrorCode::kValue, "[save] the function adds to the grad of '", saved_.state[index],
             "', which has none now: run the function before save()");
      }
      described["grad"] = store(kGradPrefix + saved_.state[index], grad, 0);
    }
    return described;
  }

  // Stores a tensor, of whose memory the graph uses the first `needed` bytes.
  json store(const std::string& name, const Tensor& tensor, int64_t needed) {
    const ValueInfo info = info_of(tensor);
    const int64_t own = span_of(info).end * element_size(info.dtype);
    const bool values = info.offset == 0 && needed <= own && is_dense(info);
    const NoGradGuard no_grad;
    if (values) {
      stored_[name] = tensor.detach();
    } else {
      Storage* const storage = tensor.impl()->storage;
      const int64_t bytes = std::max(own, needed);
      if (bytes > static_cast<int64_t>(storage->bytes)) {
        fail(ErrorCode::kInternal, "[save] '", shown(name), "' is larger than its memory");
      }
      mytorch::detail::retain(storage);
      const Dims sizes = {bytes}, strides = {1};
      stored_[name] =
          Tensor::adopt(new_tensor_over(storage, as_list(sizes), as_list(strides), kUInt8, 0));
    }
    return {{"name", name},
            {"dtype", dtype_name(info.dtype)},
            {"sizes", std::vector<int64_t>(info.sizes.begin(), info.sizes.end())},
            {"strides", std::vector<int64_t>(info.strides.begin(), info.strides.end())},
            {"offset", info.offset},
            {"device", tensor.device().str()},
            {"storage", values ? "values" : "bytes"}};
  }

  const SavedProgram& saved_;
  std::vector<int64_t> needed_;  // the bytes of each tensor from outside that the graph uses
  TensorMap stored_;
};

// ---- reading ----

[[noreturn]] void damaged(const std::string& what) {
  fail(ErrorCode::kValue, "the signature ", what, ": the file is damaged");
}

// Members of the signature. Each throws unless there is one of the right type.
const json& member(const json& object, const char* key) {
  if (!object.is_object()) damaged("has a value where an object belongs");
  const auto found = object.find(key);
  if (found == object.end()) damaged(absl::StrCat("has no '", key, "'"));
  return *found;
}
int64_t integer(const json& value) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) {
    damaged("has no integer where one belongs");
  }
  return value.get<int64_t>();
}
std::string text(const json& value) {
  if (!value.is_string()) damaged("has no text where one belongs");
  return value.get<std::string>();
}
const json& array(const json& value) {
  if (!value.is_array()) damaged("has no list where one belongs");
  return value;
}
bool boolean(const json& value) {
  if (!value.is_boolean()) damaged("has no true or false where one belongs");
  return value.get<bool>();
}
std::vector<std::string> texts(const json& value) {
  std::vector<std::string> found;
  for (const json& each : array(value)) found.push_back(text(each));
  return found;
}
Dims dims(const json& value) {
  Dims found;
  for (const json& each : array(value)) {
    if (found.size() == kMaxDims) damaged("has a tensor of too many dimensions");
    found.push_back(integer(each));
  }
  return found;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path) {}

  SavedProgram read() {
    check_format();
    const Schemas schemas = read_operators();
    SavedProgram saved;
    saved.recorded.graph = graph::parse_text(metadata("graph"), &schemas, &saved.symbols);
    if (!saved.symbols.empty()) {
      saved.text = metadata("graph");
      saved.schemas = schemas;
    }
    const json signature = json::parse(metadata("signature"), nullptr, false);
    if (signature.is_discarded()) damaged("is no JSON");
    saved.inputs = texts(member(signature, "inputs"));
    saved.outputs = texts(member(signature, "outputs"));
    for (const json& each : array(member(signature, "tensors"))) read_outside(each, &saved);
    for (const json& each : array(member(signature, "entry_grads"))) {
      const int64_t index = integer(member(each, "outside"));
      const int64_t value = integer(member(each, "value"));
      if (index < 0 || index > INT32_MAX || value < kNoValue || value > INT32_MAX) {
        damaged("has a grad with wrong numbers");
      }
      saved.recorded.entry_grads.push_back({{BufferOrigin::kOutside, static_cast<int32_t>(index)},
                                            static_cast<graph::ValueId>(value)});
    }
    for (const auto& [key, value] : file_.metadata()) {
      if (key.starts_with(kUser)) saved.metadata[key.substr(std::strlen(kUser))] = value;
    }
    if (used_.size() != file_.entries().size()) {
      fail(ErrorCode::kValue, "it has ", file_.entries().size(), " tensors, and the graph uses ",
           used_.size());
    }
    check_saved(saved);
    return saved;
  }

 private:
  const std::string& metadata(const char* key) const {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) {
      fail(ErrorCode::kValue, "it has no metadata '", key, "', which programs have");
    }
    return found->second;
  }

  void check_format() const {
    const auto found = file_.metadata().find("format");
    if (found == file_.metadata().end() || !found->second.starts_with(kFormat)) {
      fail(ErrorCode::kValue, "it is no program: nn::load_safetensors() reads tensors");
    }
    const std::string version = found->second.substr(std::strlen(kFormat));
    if (version != std::to_string(kFormatVersion) && version != std::to_string(kSymbolicVersion)) {
      fail(ErrorCode::kValue, "it has version ", shown(version), " of the format, and this is ",
           MYTORCH_VERSION_STRING, ", which reads versions up to ", kSymbolicVersion,
           ": use a newer version of mytorch");
    }
  }

  Schemas read_operators() const {
    Schemas schemas;
    std::istringstream lines(metadata("operators"));
    std::string name, hash;
    while (lines >> name >> hash) {
      char* end = nullptr;
      schemas[name] = std::strtoull(hash.c_str(), &end, 16);
      if (hash.size() != 16 || *end != '\0') {
        fail(ErrorCode::kValue, "operator '", shown(name), "' has the hash '", shown(hash),
             "', which is none");
      }
      if (find_op(name) == nullptr) {
        fail(
            ErrorCode::kValue, "it calls the operator '", shown(name), "', which ",
            name.find(':') == std::string::npos
                ? "this version of mytorch does not have"
                : "is not registered: register it, or load the backend that has it, before load()");
      }
    }
    if (!lines.eof()) fail(ErrorCode::kValue, "its list of operators does not end");
    return schemas;
  }

  Tensor read_tensor(const json& described) {
    const std::string name = text(member(described, "name"));
    if (!used_.insert(name).second) damaged("has a tensor twice");
    if (!file_.contains(name)) {
      fail(ErrorCode::kValue, "it has no tensor '", shown(name), "', which the graph uses");
    }
    ValueInfo info;
    info.dtype = dtype_from_name(text(member(described, "dtype")).c_str());
    info.sizes = dims(member(described, "sizes"));
    info.strides = dims(member(described, "strides"));
    info.offset = integer(member(described, "offset"));
    if (info.sizes.size() != info.strides.size()) damaged("has other sizes than strides");
    const Span span = span_of(info);
    const std::string storage = text(member(described, "storage"));
    const Device device(text(member(described, "device")));
    Tensor stored = file_.load(name, device);
    if (storage == "values") {
      if (stored.dtype() != info.dtype || !(stored.sizes() == as_list(info.sizes)) ||
          info.offset != 0 || !is_dense(info)) {
        fail(ErrorCode::kValue, "tensor '", shown(name), "' is not what the signature says");
      }
      if (stored.strides() == as_list(info.strides)) return stored;
      Tensor tensor = Tensor::adopt(new_tensor_strided(as_list(info.sizes), as_list(info.strides),
                                                       info.dtype, stored.device()));
      const NoGradGuard no_grad;
      tensor.copy_(stored);
      return tensor;
    }
    if (storage != "bytes" || stored.dtype() != kUInt8 ||
        span.end * element_size(info.dtype) > stored.numel()) {
      fail(ErrorCode::kValue, "tensor '", shown(name), "' is not what the signature says");
    }
    if (info.dtype == kBool) check_bools(name);
    mytorch::detail::retain(stored.impl()->storage);
    return Tensor::adopt(new_tensor_over(stored.impl()->storage, as_list(info.sizes),
                                         as_list(info.strides), info.dtype, info.offset));
  }

  // Kernels rely on the bytes of bools.
  void check_bools(const std::string& name) const {
    const Tensor bytes = file_.load(name);
    const auto* begin = static_cast<const uint8_t*>(bytes.raw_data());
    if (std::any_of(begin, begin + bytes.numel(), [](uint8_t byte) { return byte > 1; })) {
      fail(ErrorCode::kValue, "tensor '", shown(name), "' has a bool that is not 0 or 1");
    }
  }

  void read_outside(const json& described, SavedProgram* saved) {
    Tensor tensor = read_tensor(described);
    if (boolean(member(described, "requires_grad"))) tensor.set_requires_grad(true);
    if (described.contains("grad")) tensor.set_grad(read_tensor(described["grad"]));
    saved->recorded.outside.push_back(tensor);
    saved->state.push_back(text(member(described, "name")));
  }

  const SafetensorsFile file_;
  std::set<std::string> used_;  // names of tensors
};

void save(const SavedProgram& saved, const std::string& path) { Writer(saved).write(path); }

SavedProgram load(const std::string& path) {
  try {
    return Reader(path).read();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kOutOfMemory) throw;
    std::string reason = error.what();
    constexpr size_t kMost = 1000;
    if (reason.size() > kMost) reason = reason.substr(0, kMost) + "...";
    fail(ErrorCode::kIo, "[load] file ", path, ": ", reason);
  }
}

constexpr graph::ProgramFiles kFiles = {save, load};
[[maybe_unused]] const bool installed = (graph::program_files = &kFiles, true);

}  // namespace
}  // namespace mytorch::nn::programs
