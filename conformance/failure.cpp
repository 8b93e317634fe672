#include "conformance/failure.h"

#include <utility>

#include "conformance/check.h"

namespace mytorch::conformance {
namespace {

constexpr std::pair<const char*, const char*> kCauses[] = {
    {"error", "the kernel, or the host before it, does not test for this error"},
    {"error (reference)", "the sample expects another message than the operator gives"},
    {"reference", "the sample or the operator's record is wrong; no backend can pass"},
    {"inputs", "the kernel writes to an operand, or beyond the end of its output"},
    {"out=", "the kernel relies on what its output held before, or writes beyond its end"},
    {"out= (strided)", "the kernel ignores the strides of its output"},
    {"in-place", "the kernel reads an input element after it has written its output there"},
    {"compiled, in place",
     "the kernel reads an operand after it has written a result in its place"},
    {"composite", "an operator into which this one decomposes; for a primitive, its own kernel"},
    {"geometry", "the shape or stride inference of the operator"},
    {"gradient alone", "a backward kernel computes another gradient if only some are requested"},
    {"gradient in place", "the in-place form overwrites what the gradient reads"},
    {"gradcheck", "the gradient formula, or the kernel of the backward operator"},
    {"gradgradcheck", "the gradient of the backward operator"},
    {"gradient form", "the gradient formula: how it restores the shape of the operand"},
    {"gradient", "the gradient formula, or the kernel of the backward operator"},
    {"golden", "the operator's semantics differ from PyTorch's"},
    {"types", "the operator's `supports` or promotion rule refuses every type"},
    {"process", "an access outside of the operands, a host access to device memory, or a deadlock"},
    {"harness", "the sample does not fit the operator's schema"},
    {"again", "the kernel keeps state from one call to the next"},
    {"results", "the kernel leaves elements unwritten, or writes beyond the end of its output"},
    {"results (strided)", "the kernel ignores the strides of its output"},
    {"transposed", "the kernel ignores the strides of its input"},
    {"sliced", "the kernel ignores the strides of its input"},
    {"large", "the kernel's blocks: their last, odd part, or an index that is too narrow"},
    {"special", "a shortcut that skips elements, or a comparison that is false for NaN"},
    {"threads", "memory that calls share, such as a static buffer"},
    {"cpu", "the kernels of the device and of the CPU compute different functions"},
};

}  // namespace

const char* route_name(Route route) {
  constexpr const char* kNames[] = {"none", "view", "native", "composite", "fallback"};
  return kNames[static_cast<int>(route)];
}

std::string likely_cause(const Failure& failure) {
  if (failure.check == "functional") {
    switch (failure.route) {
      case Route::kNative:
        return "the operator's own kernel; `mytorch explain` names it";
      case Route::kComposite:
        return "no kernel of the operator ran: check the operators into which it decomposes first";
      case Route::kFallback:
        return "the call ran on the CPU: check copy_ and the device's copies first";
      default:
        return "";
    }
  }
  for (const auto& [check, cause] : kCauses) {
    if (failure.check == check) return cause;
  }
  return "";
}

std::string reproducer(const Options& options, const std::string& op, int number) {
  std::string text = "mytorch check";
  if (!options.plugin.empty()) {
    text += " " + options.plugin;
    if (!options.fallback) text += " --no-fallback";
  } else {
    if (!options.backend.empty()) text += " --backend " + options.backend;
    if (options.device != "cpu") text += " --device " + options.device;
  }
  if (!options.samples.empty()) text += " --samples " + options.samples;
  if (options.edges) text += " --edges";
  text += " --only " + op + " --seed " + std::to_string(options.seed);
  return number >= 0 ? text + " --case " + std::to_string(number) : text;
}

void print_failure(const Failure& failure, const std::string& reproducer, std::ostream& out) {
  const auto line = [&](const char* label, const std::string& text) {
    if (!text.empty()) out << "  " << label << text << "\n";
  };
  out << "FAIL " << failure.op;
  if (failure.number >= 0) out << ", case " << failure.number;
  out << ": " << failure.check << "\n";
  line("call:      ", failure.arguments);
  line("problem:   ", failure.what);
  line("likely:    ", likely_cause(failure));
  line("reproduce: ", reproducer);
  out << std::flush;
}

}  // namespace mytorch::conformance
