#include "mytorch/nn/parametrize.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/conv.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/dot.h"
#include "mytorch/ops/flatten.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/movedim.h"
#include "mytorch/ops/mv.h"
#include "mytorch/ops/normalize.h"
#include "mytorch/ops/randn.h"
#include "nn/modules/lasting.h"
#include "nn/modules/names.h"

namespace mytorch::nn::utils {
namespace parametrize {
namespace {

constexpr const char* kParametrizations = "parametrizations";

// Whether the tensor may take other data.
bool owns_memory(const Tensor& tensor) { return tensor.is_leaf() && !tensor.is_view(); }

// The originals of a member, and the modules that compute it.
class ParametrizationList final : public Layer<ParametrizationList, ModuleList> {
 public:
  using Layer::Layer;
  ParametrizationList() = default;

  // Takes the originals that give `value`. A single one is the same tensor, unless it is a view.
  void set_originals(const Tensor& value, bool parameter) {
    auto* inverse = child(0).as<Parametrization>();
    std::vector<Tensor> originals =
        inverse != nullptr ? inverse->right_inverse(value) : std::vector<Tensor>{value};
    const bool requires_grad = value.requires_grad();
    const bool single = originals.size() == 1;
    const bool same = single && owns_memory(value);
    if (same) {
      if (!originals[0].is_same(value)) value.set_data(originals[0].detach());
      originals[0] = value;
    }
    for (size_t i = 0; i < originals.size(); ++i) {
      const std::string name = single ? "original" : absl::StrCat("original", i);
      // Originals must not share memory with each other or with the member.
      const Tensor original = same ? value : mytorch::clone(originals[i]).detach();
      if (parameter) {
        register_parameter(name, original, requires_grad);
      } else {
        register_buffer(name, original);
      }
    }
  }

  Tensor compute() {
    Tensor value;
    if (auto* first = child(0).as<Parametrization>(); first != nullptr) {
      std::vector<Tensor> originals;
      for (size_t i = 0; i < num_held(); ++i) originals.push_back(held_parameter(i));
      value = first->compute(originals);
    } else {
      value = child(0)(held_parameter(0));
    }
    for (size_t i = 1; i < size(); ++i) value = child(i)(value);
    return value;
  }

  // Returns the original, or an undefined tensor if there are several.
  Tensor original() { return num_held() == 1 ? held_parameter(0) : Tensor(); }
};

// Throws unless a parametrization gives a tensor of the shape and type of the member.
void check_computed(const Module& module, const std::string& name, const Tensor& computed,
                    const Tensor& member) {
  const bool type = computed.dtype() == member.dtype();
  if (type && computed.sizes() == member.sizes()) return;
  fail(type ? ErrorCode::kShape : ErrorCode::kType, "[parametrize] '", name, "' of ",
       class_name(module), " is ", dtype_name(member.dtype()), " ", shape_str(member.sizes()),
       ", but the parametrization gives ", dtype_name(computed.dtype()), " ",
       shape_str(computed.sizes()), ": return a tensor of the same shape and type");
}

ParametrizationList* find_list(Module& module, const std::string& name) {
  for (const auto& [child, dict] : module.named_children()) {
    if (child != kParametrizations) continue;
    for (const auto& [parameter, list] : dict->named_children()) {
      if (parameter == name) return list->as<ParametrizationList>();
    }
  }
  return nullptr;
}

ParametrizationList& need_list(const char* what, Module& module, const std::string& name) {
  ParametrizationList* list = find_list(module, name);
  if (list == nullptr) {
    fail(ErrorCode::kValue, "[", what, "] '", name, "' of ", class_name(module),
         " is not parametrized");
  }
  return *list;
}

}  // namespace

std::vector<Tensor> Parametrization::right_inverse(const Tensor& value) { return {value}; }

Tensor Registration::find(const Module& module, const std::string& name) {
  if (module.lazy()) {
    fail(ErrorCode::kValue, "[parametrize] ", class_name(module),
         " takes the sizes of its parameters from its first input: call it with an example first");
  }
  std::vector<std::string> names;
  for (const Module::TensorEntry& entry : module.tensors_) {
    const Tensor& tensor = module.resolve(entry);
    if (!tensor.defined()) continue;
    if (entry.name == name) return tensor;
    names.push_back(entry.name);
  }
  fail(ErrorCode::kValue, "[parametrize] ", class_name(module), " has no parameter or buffer '",
       name, "' of its own", names.empty() ? "" : ": give one of ", absl::StrJoin(names, ", "));
}

void Registration::add(Module& module, const void* object, size_t bytes, const std::string& name,
                       NamedAny parametrization) {
  const LastingTensors lasting;
  NoGradGuard no_grad;
  const auto has_name = [&](const auto& entry) { return entry.name == name; };
  const Tensor present = find(module, name);
  if (ParametrizationList* list = find_list(module, name); list != nullptr) {
    auto* added = parametrization.module().ptr()->as<Parametrization>();
    if (const size_t n = added != nullptr ? added->right_inverse(present.detach()).size() : 1;
        n != 1) {
      fail(ErrorCode::kValue, "[parametrize] '", name, "' of ", class_name(module),
           " is parametrized, and ", class_name(*added), " computes it of ", n,
           " tensors: remove the first one with remove_parametrizations()");
    }
    module.note_change();
    parametrization.name_ = std::to_string(list->size());
    parametrization.module().ptr()->train(list->training());
    list->Module::register_any(std::move(parametrization));
    try {
      const Tensor computed = list->compute();
      check_computed(module, name, computed, present);
      module.compute_members();
    } catch (...) {
      list->Module::children_.pop_back();
      throw;
    }
    return;
  }
  Module::TensorEntry& entry =
      *std::find_if(module.tensors_.begin(), module.tensors_.end(), has_name);
  std::vector<std::ptrdiff_t> members;
  if (entry.held) {
    const auto begin = reinterpret_cast<uintptr_t>(object);
    for (size_t at = 0; at + sizeof(Tensor) <= bytes; at += alignof(Tensor)) {
      const void* word = reinterpret_cast<const void*>(begin + at);
      const auto* tensor = static_cast<const void*>(&entry.tensor);
      if (word == tensor || std::memcmp(word, tensor, sizeof(Tensor)) != 0) continue;
      members.push_back(
          static_cast<std::ptrdiff_t>(begin + at - reinterpret_cast<uintptr_t>(&module)));
    }
    if (bytes == 0 && entry.tensor.impl()->refs.load() > 1) {
      fail(ErrorCode::kValue, "[parametrize] '", name, "' of ", class_name(module),
           " was registered by value, and its member is not known: give the module as an object of "
           "its own class instead of a base");
    }
  }

  const Tensor value = module.resolve(entry);
  const Tensor data = value.detach();
  auto list = std::make_shared<ParametrizationList>();
  list->Module::register_any(std::move(parametrization));
  list->train(module.training());
  list->set_originals(value, entry.role == Module::Role::kParameter);
  const Tensor computed = list->compute();
  try {
    check_computed(module, name, computed, data);
  } catch (...) {
    if (owns_memory(value)) value.set_data(data);
    throw;
  }

  // Copies of the module share the dictionary, but not the parametrization.
  const auto found =
      std::find_if(module.children_.begin(), module.children_.end(),
                   [](const auto& child) { return child.name == kParametrizations; });
  auto dict = std::make_shared<ModuleDict>();
  if (found == module.children_.end()) {
    dict->train(module.training());
    module.add_shared(kParametrizations, dict, Module::copier<ModuleDict>());
  } else {
    *dict = static_cast<const ModuleDict&>(*found->shared);
    found->shared = dict;
  }
  dict->insert(name, std::move(list));
  entry.computed = true;
  entry.members = std::move(members);
  module.parametrized_ = true;
  module.set_computed(entry, computed.detach());
}

void Registration::remove(Module& module, const std::string& name, bool leave_parametrized) {
  module.note_change();
  NoGradGuard no_grad;
  ParametrizationList& list = need_list("remove_parametrizations", module, name);
  Tensor value = list.original();
  if (!value.defined() && !leave_parametrized) {
    fail(ErrorCode::kValue, "[remove_parametrizations] '", name, "' of ", class_name(module),
         " has several originals, none of which can be left: set leave_parametrized = true");
  }
  if (leave_parametrized) {
    const bool training = list.training();
    const bool trained =
        list.named_parameters().empty() ? false : list.parameters()[0].requires_grad();
    list.eval();
    const Tensor computed = list.compute().detach();
    list.train(training);
    if (value.defined()) {
      value.set_data(computed);
    } else {
      value = mytorch::clone(computed);
      if (trained) value.requires_grad_();
    }
  }
  for (Module::TensorEntry& entry : module.tensors_) {
    if (entry.name != name) continue;
    module.set_computed(entry, value);
    entry.computed = false;
    entry.members.clear();
  }
  module.parametrized_ = std::any_of(module.tensors_.begin(), module.tensors_.end(),
                                     [](const auto& entry) { return entry.computed; });
  const auto found =
      std::find_if(module.children_.begin(), module.children_.end(),
                   [](const auto& child) { return child.name == kParametrizations; });
  if (!module.parametrized_) {
    module.children_.erase(found);
    return;
  }
  auto dict = std::make_shared<ModuleDict>(static_cast<const ModuleDict&>(*found->shared));
  std::erase_if(static_cast<Module&>(*dict).children_,
                [&](const auto& child) { return child.name == name; });
  found->shared = dict;
}

bool Registration::any(const Module& module, const std::string& name) {
  return std::any_of(module.tensors_.begin(), module.tensors_.end(), [&](const auto& entry) {
    return entry.computed && (name.empty() || entry.name == name);
  });
}

Tensor Registration::compute(Module& module, const std::string& name) {
  return need_list("parametrize", module, name).compute();
}

Module* Registration::only(Module& module, const std::string& name) {
  ParametrizationList* list = find_list(module, name);
  return list != nullptr && list->size() == 1 ? &(*list)[0] : nullptr;
}

bool is_parametrized(const Module& module, const std::string& name) {
  return Registration::any(module, name);
}

void remove_parametrizations(Module& module, const std::string& name, bool leave_parametrized) {
  Registration::remove(module, name, leave_parametrized);
}

}  // namespace parametrize

namespace {

// The norm of each index of dimension `dim`, broadcastable to the tensor; of the tensor if -1.
Tensor norm_except(const Tensor& tensor, int64_t dim) {
  if (dim == -1) return linalg_vector_norm(tensor);
  std::vector<int64_t> others;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (i != dim) others.push_back(i);
  }
  return others.empty() ? abs(tensor) : linalg_vector_norm(tensor, 2, others, true);
}

class WeightNorm final : public Layer<WeightNorm, parametrize::Parametrization> {
 public:
  using Layer::Layer;
  explicit WeightNorm(int64_t dim) : dim_(dim) {}
  Tensor compute(const std::vector<Tensor>& originals) override {
    return originals[1] * (originals[0] / norm_except(originals[1], dim_));
  }
  std::vector<Tensor> right_inverse(const Tensor& value) override {
    if (dim_ < -1 || dim_ >= value.dim()) {
      fail(ErrorCode::kValue, "[weight_norm] a parameter ", shape_str(value.sizes()),
           " has no dimension ", dim_, ": give 0 to ", value.dim() - 1, ", or -1 for one norm");
    }
    return {norm_except(value, dim_), value};
  }
  std::string describe() const override { return absl::StrCat("WeightNorm(dim=", dim_, ")"); }

 private:
  int64_t dim_ = 0;
};

class SpectralNorm final : public Layer<SpectralNorm, parametrize::Parametrization> {
 public:
  using Layer::Layer;
  SpectralNorm(const Tensor& weight, int64_t dim, SpectralNormArgs options)
      : options_(options), dim_(dim) {
    if (options.n_power_iterations < 1) {
      fail(ErrorCode::kValue, "[spectral_norm] n_power_iterations is ", options.n_power_iterations,
           ": give at least 1");
    }
    if (dim < 0 || dim >= weight.dim()) {
      fail(ErrorCode::kValue, "[spectral_norm] a parameter ", shape_str(weight.sizes()),
           " has no dimension ", dim, ": give 0 to ", weight.dim() - 1);
    }
    if (weight.dim() == 1) return;
    const LastingTensors lasting;
    NoGradGuard no_grad;
    const Tensor matrix = as_matrix(weight.detach());
    const auto random = [&](int64_t size) {
      const Tensor vector = randn({size}).to(weight.device()).to(weight.dtype());
      return normalize(vector, 2, {0}, options_.eps);
    };
    u_ = random(matrix.size(0));
    v_ = random(matrix.size(1));
    register_buffer("_u", u_);
    register_buffer("_v", v_);
    iterate(matrix, 15);
  }

  // The vectors are copied, because the next call changes them, perhaps before this one's backward.
  Tensor compute(const std::vector<Tensor>& originals) override {
    const Tensor& weight = originals[0];
    if (weight.dim() == 1) return normalize(weight, 2, {0}, options_.eps);
    const Tensor matrix = as_matrix(weight);
    if (training()) {
      NoGradGuard no_grad;
      iterate(matrix.detach(), options_.n_power_iterations);
    }
    return weight / dot(mytorch::clone(u_), mv(matrix, mytorch::clone(v_)));
  }
  std::string describe() const override {
    return absl::StrCat("SpectralNorm(n_power_iterations=", options_.n_power_iterations,
                        ", dim=", dim_, ")");
  }

 private:
  Tensor as_matrix(const Tensor& weight) const {
    return flatten(dim_ == 0 ? weight : movedim(weight, dim_, 0), 1);
  }
  void iterate(const Tensor& matrix, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      u_.copy_(normalize(mv(matrix, v_), 2, {0}, options_.eps));
      v_.copy_(normalize(mv(matrix.t(), u_), 2, {0}, options_.eps));
    }
  }

  SpectralNormArgs options_;
  int64_t dim_ = 0;
  Tensor u_, v_;
};

bool is_transposed(const Module& module) {
  return module.as<ConvTransposeNd<1>>() != nullptr || module.as<ConvTransposeNd<2>>() != nullptr ||
         module.as<ConvTransposeNd<3>>() != nullptr;
}

template <class Norm>
void remove_norm(const char* what, Module& module, const std::string& name) {
  Module* norm = parametrize::Registration::only(module, name);
  if (norm == nullptr || norm->as<Norm>() == nullptr) {
    fail(ErrorCode::kValue, "[", what, "] this norm is not the only parametrization of '", name,
         "' of ", class_name(module),
         ": name the parameter that has it, or call parametrize::remove_parametrizations");
  }
  parametrize::remove_parametrizations(module, name);
}

}  // namespace

NamedAny detail::weight_norm(int64_t dim) { return {"0", WeightNorm(dim)}; }

NamedAny detail::spectral_norm(const Module& module, const std::string& name,
                               SpectralNormArgs options) {
  const Tensor weight = parametrize::Registration::find(module, name);
  const bool transposed = is_transposed(module) && weight.dim() > 1;
  int64_t dim = options.dim.value_or(transposed ? 1 : 0);
  if (dim < 0) dim += weight.dim();
  return {"0", SpectralNorm(weight, dim, options)};
}

void remove_weight_norm(Module& module, const std::string& name) {
  remove_norm<WeightNorm>("remove_weight_norm", module, name);
}

void remove_spectral_norm(Module& module, const std::string& name) {
  remove_norm<SpectralNorm>("remove_spectral_norm", module, name);
}

}  // namespace mytorch::nn::utils

namespace mytorch::nn {

void Module::compute_members() {
  for (TensorEntry& entry : tensors_) {
    if (entry.computed) {
      set_computed(entry, utils::parametrize::Registration::compute(*this, entry.name));
    }
  }
}

}  // namespace mytorch::nn
