#include "mytorch/nn/summary.h"

#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <string_view>

#include "absl/strings/str_format.h"
#include "core/types/errors.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/table/op.h"
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

template <class T>
const T& field_at(const void* args, uint32_t offset) {
  return *reinterpret_cast<const T*>(static_cast<const char*>(args) + offset);
}

uint32_t offset_of(const OpInfo& op, std::string_view argument) {
  return std::find_if(op.args, op.args + op.num_args,
                      [&](const ArgInfo& arg) { return arg.name == argument; })
      ->offset;
}

double size_at(const mt_tensor* tensor, int dim) {
  return static_cast<double>(tensor->dl.shape[dim < 0 ? dim + tensor->dl.ndim : dim]);
}

double numel(const mt_tensor* tensor) {
  double count = 1;
  for (int d = 0; d < tensor->dl.ndim; ++d) count *= size_at(tensor, d);
  return count;
}

// Returns the operations of a kernel that computes products: of matrices, a convolution or
// attention. Others return 0.
double product_flops(const OpInfo& op, const void* args) {
  const std::string_view name = op.base;
  const auto tensor = [&](uint32_t offset) { return field_at<const mt_tensor*>(args, offset); };
  const auto given = [&](const char* argument) { return tensor(offset_of(op, argument)); };
  const auto result = [&] { return tensor(op.outputs[0].offset); };
  if (name == "mm" || name == "bmm") return 2 * numel(result()) * size_at(given("self"), -1);
  if (name == "addmm") return 2 * numel(result()) * size_at(given("mat1"), -1);
  if (name == "baddbmm") return 2 * numel(result()) * size_at(given("batch1"), -1);
  if (name == "linear" || name == "linear_gelu_forward") {
    return 2 * numel(result()) * size_at(given("input"), -1);
  }
  if (name == "convolution") {
    const bool transposed = field_at<int64_t>(args, offset_of(op, "transposed")) != 0;
    const mt_tensor* weight = given("weight");
    const mt_tensor* factors = transposed ? given("input") : result();
    return 2 * numel(factors) * numel(weight) / size_at(weight, 0);
  }
  if (name == "attention_forward") {
    return 2 * (numel(given("query")) + numel(result())) * size_at(given("key"), 2);
  }
  return 0;
}

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
  // The products in the calls that are running, without those of their children. A kernel that is
  // missing is substituted by others, which are observed instead.
  std::vector<double> products(1, 0.0);
  const Observe observe([&products](const KernelCall& call) {
    if (call.entry->slots[call.slot].load() == &OpEntry::kDeclines) return;
    products.back() += product_flops(*call.entry->info, call.args);
  });
  for (size_t i = 0; i < summary.layers.size(); ++i) {
    const auto& [path, module] = evaluation.modules()[i];
    summary.layers[i].path = path;
    evaluation.keep(module->register_forward_pre_hook(
        [&products](Module&, const Tensor&) { products.push_back(0); }));
    evaluation.keep(module->register_forward_hook(
        [layer = &summary.layers[i], &products](Module& called, const Tensor& input,
                                                const Tensor& output) {
          ++layer->calls;
          const double observed = products.back();
          products.pop_back();
          const double own = input.defined() && output.defined() ? called.flops(input, output) : 0;
          layer->flops += own > 0 ? own : observed;
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
    summary.gradient_bytes += parameter.numel() * parameter.element_size();
    layer.trainable_parameters += parameter.numel();
    summary.trainable_parameters += parameter.numel();
  }
  for (const Tensor& buffer : model.buffers()) {
    summary.buffer_bytes += buffer.numel() * buffer.element_size();
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
  absl::StrAppend(&text, "Memory in training: ", bytes_str(parameter_bytes), " of parameters, ",
                  bytes_str(buffer_bytes), " of buffers, ", bytes_str(gradient_bytes),
                  " of gradients, ", bytes_str(output_bytes), " of outputs; state of SGD ",
                  bytes_str(0), ", with momentum ", bytes_str(gradient_bytes), ", of Adam ",
                  bytes_str(2 * gradient_bytes), "\n");
  return text;
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) { return out << summary.str(); }

}  // namespace mytorch::nn
