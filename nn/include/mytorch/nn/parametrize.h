// Parameters that are computed from other parameters: weight_norm, spectral_norm, or your own.
//
//   nn::utils::weight_norm(net.conv);  // net.conv.weight is g * v / |v|
//   optim::Adam adam(net.parameters());  // conv.parametrizations.weight.original0 is g, 1 is v
//
// The member, such as `weight`, leaves the parameters and the state of the module. In its place
// come the originals, under PyTorch's names. Each call of the module computes the member from them,
// with gradients; so does the arrow of a layer, `fc->weight`. `fc.weight` and `fc.forward(x)` have
// the value of the last call. Copies of a module share the originals, as they share parameters;
// clones have their own. Make the optimizer after the parametrization.
//
// A parametrized module must not be called from several threads at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "mytorch/nn/container.h"
#include "mytorch/nn/module.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::utils {
namespace parametrize {

// The base of parametrizations that compute a parameter from several originals, or that choose
// originals for a given parameter. Others are any module or function from Tensor to Tensor.
class Parametrization : public Module {
 public:
  // Returns the parameter.
  virtual Tensor compute(const std::vector<Tensor>& originals) = 0;
  // Returns originals for which `compute` gives `value` or, if there are none, something close to
  // it. Called once, without recording. The default returns `value`.
  virtual std::vector<Tensor> right_inverse(const Tensor& value);
  Tensor forward(const Tensor& original) final { return compute({original}); }
};

// The functions below, as a friend of Module.
class Registration {
 public:
  // The module is in the object of `bytes` at `object`; 0 bytes if its size is unknown.
  static void add(Module& module, const void* object, size_t bytes, const std::string& name,
                  NamedAny parametrization);
  static void remove(Module& module, const std::string& name, bool leave_parametrized);
  static bool any(const Module& module, const std::string& name);
  // Returns the member. Throws Error(kValue) if there is none.
  static Tensor find(const Module& module, const std::string& name);
  static Tensor compute(Module& module, const std::string& name);
  // Returns the only parametrization of a member, or null.
  static Module* only(Module& module, const std::string& name);
};

// A module, by reference or as a temporary, which the functions return.
template <class M>
concept ModuleArgument = std::is_base_of_v<Module, std::remove_reference_t<M>>;

// Makes `parametrization`, a module or a function from Tensor to Tensor, compute the parameter or
// buffer `name` of the module, from originals that give its present value if the parametrization is
// a Parametrization, else from the present value. Further parametrizations of the same name apply
// to the result of the first. A single original is the same tensor as the parameter was. Returns
// the module. Throws Error(kValue) if there is no such parameter, and Error(kShape or kType) if the
// parametrization changes its shape or type.
template <ModuleArgument M, class P>
M register_parametrization(M&& module, const std::string& name, P parametrization) {
  const bool exact = typeid(module) == typeid(std::remove_cvref_t<M>);
  Registration::add(module, &module, exact ? sizeof(module) : 0, name,
                    NamedAny("0", std::move(parametrization)));
  return std::forward<M>(module);
}

// Returns whether the member `name`, or any member, is parametrized.
bool is_parametrized(const Module& module, const std::string& name = "");

// Makes the member a parameter again: with its computed value, as in evaluation mode, or with the
// original if not `leave_parametrized`. Throws Error(kValue) if it is not parametrized, or has
// several originals to leave.
void remove_parametrizations(Module& module, const std::string& name,
                             bool leave_parametrized = true);

}  // namespace parametrize

struct SpectralNormArgs {
  int64_t n_power_iterations = 1;   // in each call in training
  double eps = 1e-12;               // least norm of the singular vectors
  std::optional<int64_t> dim = {};  // of the outputs; 1 for transposed convolutions, else 0
};

namespace detail {
NamedAny weight_norm(int64_t dim);
NamedAny spectral_norm(const Module& module, const std::string& name, SpectralNormArgs options);
}  // namespace detail

// Splits a parameter into a magnitude g, `original0`, and a direction v, `original1`: g * v / |v|
// (Salimans and Kingma, NeurIPS 2016). There is a norm for each index of dimension `dim`, or one
// for the whole parameter if `dim` is -1.
template <parametrize::ModuleArgument M>
M weight_norm(M&& module, const std::string& name = "weight", int64_t dim = 0) {
  const bool exact = typeid(module) == typeid(std::remove_cvref_t<M>);
  parametrize::Registration::add(module, &module, exact ? sizeof(module) : 0, name,
                                 detail::weight_norm(dim));
  return std::forward<M>(module);
}

// Divides a parameter by its largest singular value, as a matrix of the outputs by all else (Miyato
// et al., ICLR 2018). Each call in training improves the estimate of the singular vectors by
// iterations of the power method; they are buffers. Parameters of one dimension are divided by
// their norm.
template <parametrize::ModuleArgument M>
M spectral_norm(M&& module, const std::string& name = "weight", SpectralNormArgs options = {}) {
  const bool exact = typeid(module) == typeid(std::remove_cvref_t<M>);
  parametrize::Registration::add(module, &module, exact ? sizeof(module) : 0, name,
                                 detail::spectral_norm(module, name, options));
  return std::forward<M>(module);
}

// Make the parameter an ordinary one again. Throw Error(kValue) unless this norm is its only
// parametrization.
void remove_weight_norm(Module& module, const std::string& name = "weight");
void remove_spectral_norm(Module& module, const std::string& name = "weight");

namespace parametrizations {  // PyTorch's names
using utils::spectral_norm;
using utils::weight_norm;
}  // namespace parametrizations

}  // namespace mytorch::nn::utils
