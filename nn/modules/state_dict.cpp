// The state of a module by name, in memory and in files.
#include <string>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/archive.h"
#include "mytorch/nn/module.h"
#include "mytorch/options_epoch.h"

namespace mytorch::nn {
namespace {

// Formats a list of names: "'a', 'b' and 3 more".
std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "'" : ", '", names[i], "'");
  }
  if (names.size() > kShown) absl::StrAppend(&text, " and ", names.size() - kShown, " more");
  return text;
}

// Returns the name that PyTorch's earlier weight_norm and spectral_norm give an original:
// "fc.weight_g" for "fc.parametrizations.weight.original0"; "" for other names.
std::string earlier_name(const std::string& name) {
  constexpr const char* kEndings[][2] = {{".original", "_orig"},
                                         {".original0", "_g"},
                                         {".original1", "_v"},
                                         {".0._u", "_u"},
                                         {".0._v", "_v"}};
  const std::string folder = "parametrizations.";
  const size_t at = name.rfind(folder);
  if (at == std::string::npos) return "";
  std::string parameter = name.substr(at + folder.size());
  for (const auto& [ending, earlier] : kEndings) {
    if (!parameter.ends_with(ending)) continue;
    parameter.resize(parameter.size() - std::char_traits<char>::length(ending));
    return absl::StrCat(name.substr(0, at), parameter, earlier);
  }
  return "";
}

}  // namespace

TensorMap Module::state_dict() const {
  TensorMap state;
  visit("", [&](const std::string& name, Tensor& tensor, Role role) {
    if (role != Role::kTransientBuffer) state[name] = tensor.detach();
  });
  return state;
}

LoadReport Module::load_state_dict(const TensorMap& state, bool strict) {
  LoadReport report;
  std::string misfits;
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::map<std::string, bool> known;
  visit("", [&](const std::string& name, Tensor& tensor, Role role) {
    if (role == Role::kTransientBuffer) return;
    known[name] = true;
    auto found = state.find(name);
    if (found == state.end()) {
      found = state.find(earlier_name(name));
      if (found != state.end()) known[found->first] = true;
    }
    if (found == state.end()) {
      report.missing.push_back(name);
    } else if (!found->second.defined()) {
      absl::StrAppend(&misfits, misfits.empty() ? "" : "; ", "'", name, "' is undefined");
    } else if (!(found->second.sizes() == tensor.sizes())) {
      absl::StrAppend(&misfits, misfits.empty() ? "" : "; ", "'", name, "' has shape ",
                      shape_str(found->second.sizes()), ", the module's is ",
                      shape_str(tensor.sizes()));
    } else {
      copies.emplace_back(tensor, found->second);
    }
  });
  for (const auto& [name, tensor] : state) {
    if (known.count(name) == 0) report.unexpected.push_back(name);
  }
  if (strict && !(report.missing.empty() && report.unexpected.empty())) {
    fail(
        ErrorCode::kValue, "[load_state_dict] the names differ: ",
        report.missing.empty() ? "" : absl::StrCat("missing ", some_names(report.missing)),
        report.missing.empty() || report.unexpected.empty() ? "" : "; ",
        report.unexpected.empty() ? "" : absl::StrCat("unexpected ", some_names(report.unexpected)),
        ". Load the state of the same module, or set strict = false to load matching names");
  }
  if (!misfits.empty()) fail(ErrorCode::kShape, "[load_state_dict] ", misfits);
  NoGradGuard no_grad;
  bool has_masters = false;
  for (const auto& [to, from] : copies) {
    to.copy_(from);
    has_masters = has_masters || to.element_size() == 2;
  }
  // Recorded steps keep master weights, which now follow from these.
  if (has_masters) options_changed();
  return report;
}

void Module::save(const std::string& path) const { save_safetensors(path, state_dict()); }

LoadReport Module::load(const std::string& path, bool strict) {
  try {
    return load_state_dict(load_safetensors(path), strict);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo) throw;  // the message names the file
    throw Error(error.code(), absl::StrCat(error.what(), " (file ", path, ")"));
  }
}

void Module::save(serialize::OutputArchive& archive) const {
  for (const auto& [name, tensor] : state_dict()) archive.write(name, tensor);
}

void Module::load(const serialize::InputArchive& archive) { load_state_dict(archive.tensors()); }

}  // namespace mytorch::nn
