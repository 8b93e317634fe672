#include "mytorch/nn/padding.h"

#include "mytorch/ops/pad.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kPadModes[] = {"constant", "reflect", "replicate", "circular"};
constexpr const char* kPadModules[] = {"ConstantPad", "ReflectionPad", "ReplicationPad",
                                       "CircularPad"};

}  // namespace

PadMode from_name(Str name, PadMode /*type*/) {
  return static_cast<PadMode>(index_of_name("pad", name, kPadModes));
}

const char* name_of(PadMode mode) { return kPadModes[static_cast<size_t>(mode)]; }

template <size_t n, PadMode mode>
Tensor PadNd<n, mode>::forward(const Tensor& input) {
  const int64_t dims = static_cast<int64_t>(n);
  if (input.dim() != dims + 1 && input.dim() != dims + 2) {
    fail(ErrorCode::kShape, "[", kPadModules[static_cast<size_t>(mode)], n, "d] input has shape ",
         shape_str(input.sizes()), ": it must have ", dims + 2, " dimensions, or ", dims + 1,
         " without a batch");
  }
  return pad(input, options->padding, name_of(mode),
             mode == PadMode::kConstant ? std::optional<double>(options->value) : std::nullopt);
}

template <size_t n, PadMode mode>
std::string PadNd<n, mode>::describe() const {
  return absl::StrCat(kPadModules[static_cast<size_t>(mode)], n, "d(", text(options->padding),
                      mode == PadMode::kConstant ? absl::StrCat(", value=", options->value) : "",
                      ")");
}

template class PadNd<1, PadMode::kConstant>;
template class PadNd<2, PadMode::kConstant>;
template class PadNd<3, PadMode::kConstant>;
template class PadNd<1, PadMode::kReflect>;
template class PadNd<2, PadMode::kReflect>;
template class PadNd<3, PadMode::kReflect>;
template class PadNd<1, PadMode::kReplicate>;
template class PadNd<2, PadMode::kReplicate>;
template class PadNd<3, PadMode::kReplicate>;
template class PadNd<1, PadMode::kCircular>;
template class PadNd<2, PadMode::kCircular>;
template class PadNd<3, PadMode::kCircular>;

}  // namespace mytorch::nn
