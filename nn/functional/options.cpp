#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

constexpr const char* kPaddingModes[] = {"zeros", "reflect", "replicate", "circular"};

}  // namespace

size_t index_of_name(const char* option, Str name, std::span<const char* const> names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return i;
  }
  fail(ErrorCode::kValue, "[", option, "] '", name, "' is none of '", absl::StrJoin(names, "', '"),
       "'");
}

const char* name_of(PaddingMode mode) { return kPaddingModes[static_cast<size_t>(mode)]; }

PaddingMode from_name(Str name, PaddingMode /*type*/) {
  return static_cast<PaddingMode>(index_of_name("padding_mode", name, kPaddingModes));
}

void detail::copy_sizes(const std::vector<int64_t>& sizes, int64_t* to, size_t n) {
  if (sizes.size() != n) {
    fail(ErrorCode::kShape, "[sizes] ", shape_str(sizes), " has ", sizes.size(), " sizes: give ", n,
         ", or one number for all");
  }
  std::copy(sizes.begin(), sizes.end(), to);
}

template <size_t n>
ConvPadding<n>::ConvPadding(Str text) {
  constexpr const char* kTexts[] = {"valid", "same"};
  same_ = index_of_name("padding", text, kTexts) == 1;
}

template class ConvPadding<1>;
template class ConvPadding<2>;
template class ConvPadding<3>;

}  // namespace mytorch::nn
