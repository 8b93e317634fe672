#include "mytorch/nn/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <ostream>

#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"

namespace mytorch::nn {
namespace {

std::string type_of(const Module& module) {
  const std::string text = module.describe();
  return text.substr(0, text.find('('));
}

// Formats 1234567 as "1,234,567".
std::string grouped(int64_t number) {
  std::string digits = absl::StrCat(number);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

// Formats a number with one of the units, each `factor` times the one before.
std::string scaled(double number, double factor, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (number >= factor && unit + 1 < units.size()) {
    number /= factor;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f%s", number, units[unit])
                   : absl::StrFormat("%.2f%s", number, units[unit]);
}

std::string bytes_str(int64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string flops_str(double flops) { return scaled(flops, 1000, {"", " K", " M", " G", " T"}); }

// Puts a model into evaluation mode, and back.
class Evaluation {
 public:
  explicit Evaluation(Module& model) : modules_(model.named_modules()) {
    for (const auto& [path, module] : modules_) modes_.push_back(module->training());
    model.eval();
  }
  ~Evaluation() {  // a module precedes its children
    for (size_t i = 0; i < modes_.size(); ++i) modules_[i].second->train(modes_[i]);
    for (HookHandle& handle : handles_) handle.remove();
  }
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  const NamedList<Module*>& modules() const { return modules_; }
  void keep(HookHandle handle) { handles_.push_back(std::move(handle)); }

 private:
  NamedList<Module*> modules_;
  std::vector<bool> modes_;
  std::vector<HookHandle> handles_;
};

}  // namespace

Summary summarize(Module& model, const std::function<void()>& run) {
  NoGradGuard no_grad;
  Evaluation evaluation(model);
  Summary summary;
  summary.layers.resize(evaluation.modules().size());
  for (size_t i = 0; i < summary.layers.size(); ++i) {
    const auto& [path, module] = evaluation.modules()[i];
    summary.layers[i].path = path;
    evaluation.keep(module->register_forward_hook(
        [layer = &summary.layers[i]](Module& called, const Tensor& input, const Tensor& output) {
          ++layer->calls;
          if (input.defined() && output.defined()) layer->flops += called.flops(input, output);
          if (!output.defined()) return;
          layer->output_shape = output.sizes().vec();
          layer->output_bytes += output.numel() * output.element_size();
        }));
  }
  run();
  std::map<std::string, LayerSummary*> by_path;
  for (size_t i = 0; i < summary.layers.size(); ++i) {
    LayerSummary& layer = summary.layers[i];
    Module& module = *evaluation.modules()[i].second;
    layer.type = type_of(module);  // lazy modules know it now
    by_path[layer.path] = &layer;
    summary.flops += layer.flops;
    if (module.named_children().empty()) summary.output_bytes += layer.output_bytes;
  }
  for (const auto& [name, parameter] : model.named_parameters()) {
    const size_t dot = name.rfind('.');
    LayerSummary& layer = *by_path.at(dot == std::string::npos ? "" : name.substr(0, dot));
    layer.parameters += parameter.numel();
    summary.parameters += parameter.numel();
    summary.parameter_bytes += parameter.numel() * parameter.element_size();
    if (!parameter.requires_grad()) continue;
    layer.trainable_parameters += parameter.numel();
    summary.trainable_parameters += parameter.numel();
  }
  return summary;
}

std::string Summary::str() const {
  using Row = std::array<std::string, 5>;
  std::vector<Row> rows = {{"Layer", "Output shape", "Parameters", "FLOPs", "Output memory"}};
  for (const LayerSummary& layer : layers) {
    const size_t depth =
        layer.path.empty()
            ? 0
            : 1 + static_cast<size_t>(std::count(layer.path.begin(), layer.path.end(), '.'));
    const size_t dot = layer.path.rfind('.');
    const std::string name = layer.path.substr(dot == std::string::npos ? 0 : dot + 1);
    const bool called = layer.calls > 0;
    rows.push_back(
        {absl::StrCat(std::string(2 * depth, ' '), name, name.empty() ? "" : ": ", layer.type,
                      layer.calls > 1 ? absl::StrCat(" (x", layer.calls, ")") : ""),
         layer.output_bytes > 0 || !layer.output_shape.empty() ? shape_str(layer.output_shape)
                                                               : "-",
         layer.parameters > 0 ? grouped(layer.parameters) : "-",
         layer.flops > 0 ? flops_str(layer.flops) : "-",
         called ? bytes_str(layer.output_bytes) : "-"});
  }
  std::array<size_t, 5> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string space(widths[i] - rows[r][i].size(), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", i < 2 ? rows[r][i] + space : space + rows[r][i]);
    }
    absl::StrAppend(&text, line, "\n");
    if (r == 0) absl::StrAppend(&text, std::string(line.size(), '-'), "\n");
  }
  absl::StrAppend(&text, "Total: ", grouped(parameters), " parameters (",
                  grouped(trainable_parameters), " trainable, ", bytes_str(parameter_bytes), "), ",
                  flops_str(flops), " FLOPs, ", bytes_str(output_bytes), " of outputs\n");
  return text;
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) { return out << summary.str(); }

}  // namespace mytorch::nn
