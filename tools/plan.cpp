// `mytorch plan`: predicts step times of a model on many GPUs, and ranks the ways to divide it.
#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "bench/harness/graph_cost.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "mytorch/backends.h"
#include "plan/calibrate.h"
#include "plan/captured.h"
#include "plan/published.h"
#include "plan/search.h"
#include "tools/commands.h"
#include "tools/measure.h"
#include "tools/read_graph.h"

namespace mytorch::tools {
namespace {

using plan::Found;
using plan::Machine;
using plan::Model;
using plan::Plan;
using plan::Wanted;

struct PlanOptions {
  std::string model, graph, gpu, network = "ib400", machine, calibrate, recompute;
  Wanted wanted;
  std::optional<int64_t> batch, sequence;
  int top = 10;
  bool published = false, fused_loss = false;
  // Of --measure.
  std::string measure, points;
  int ranks = 0;
  double seconds = 0.5, most = 0;
};

std::string fixed(double value, int digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(digits) << value;
  return text.str();
}
// Steps of a second or more have milliseconds, shorter ones 10 microseconds.
std::string seconds(double value) { return fixed(value, value < 1 ? 5 : 3); }
std::string percent(double share) { return fixed(100 * share, 1) + " %"; }
std::string gigabytes(double bytes) { return fixed(bytes / 1e9, 1); }

std::string communication(const Plan& p) {
  const plan::Step& s = p.step;
  return percent((s.tensor + s.context + s.expert + s.pipeline + s.data) / s.seconds());
}

void print_row(std::ostream& out, const Plan& p) {
  const plan::Layout& l = p.layout;
  out << std::right << std::setw(5) << l.data << std::setw(4) << l.tensor << std::setw(4)
      << l.pipeline << std::setw(4) << l.context << std::setw(4) << l.expert << std::setw(6)
      << l.zero << std::setw(7) << l.micro_batch << std::setw(8) << l.interleave << "  "
      << std::left << std::setw(10) << plan::recompute_name(l.recompute) << std::right
      << std::setw(9) << seconds(p.step.seconds()) << std::setw(9) << gigabytes(p.memory.total())
      << std::setw(9) << percent(p.utilization) << std::setw(9)
      << percent(p.step.bubble / p.step.seconds()) << std::setw(9) << communication(p) << "\n";
}

void print_details(std::ostream& out, const Plan& p) {
  const plan::Step& s = p.step;
  const plan::Memory& m = p.memory;
  out << "\nthe first: seconds of compute " << seconds(s.compute) << ", bubble "
      << seconds(s.bubble) << ", exposed communication of tp " << seconds(s.tensor) << ", cp "
      << seconds(s.context) << ", ep " << seconds(s.expert) << ", pp " << seconds(s.pipeline)
      << ", dp " << seconds(s.data) << ", optimizer " << seconds(s.optimizer) << ", rest "
      << seconds(s.host) << "\n           GB of parameters " << gigabytes(m.parameters)
      << ", gradients " << gigabytes(m.gradients) << ", optimizer " << gigabytes(m.optimizer)
      << ", activations " << gigabytes(m.activations) << ", buffers " << gigabytes(m.buffers)
      << ", reserved " << gigabytes(m.reserved) << "\n";
}

std::string machine_line(const Machine& m) {
  return m.gpu.name + " (" + fixed(m.gpu.flops / 1e12, 0) + " TFLOP/s, " + gigabytes(m.gpu.memory) +
         " GB), " + std::to_string(m.node) + " a node, " + m.outer.name + " (" +
         fixed(m.outer.bandwidth / 1e9, 1) + " GB/s a GPU)";
}

// Prints the plans that fit, or why there are none. Returns the exit status.
int print_found(const Found& found, int top) {
  std::ostream& out = std::cout;
  out << found.tried << " layouts, " << found.too_large << " of them too large for the memory\n\n";
  if (found.plans.empty()) {
    if (found.smallest) {
      out << "none fits; the smallest needs " << gigabytes(found.smallest->memory.total())
          << " GB: " << found.smallest->layout.text() << "\n";
    } else {
      out << "none divides the model:\n";
      for (const auto& [reason, count] : found.refused) {
        out << "  " << count << " layouts: " << reason << "\n";
      }
    }
    return 1;
  }
  out << "   dp  tp  pp  cp  ep  zero  micro  stages  recompute   step, s       GB      MFU   "
         "bubble"
         "  commun.\n";
  const size_t rows = std::min(found.plans.size(), static_cast<size_t>(top));
  for (size_t i = 0; i < rows; ++i) print_row(out, found.plans[i]);
  print_details(out, found.plans.front());
  return 0;
}

int print_plans(const PlanOptions& o, const Machine& machine) {
  if (o.model.empty()) {
    throw Error(ErrorCode::kValue,
                "[plan] give --model or --graph, with --gpus, or --published, --measure or "
                "--calibrate");
  }
  Model model = plan::find_model(o.model);
  if (o.batch) model.batch = *o.batch;
  if (o.sequence) model.sequence = *o.sequence;
  model.fused_loss = o.fused_loss;
  const Found found = plan::search(model, machine, o.wanted);
  std::cout << model.name << ": " << fixed(model.parameters() / 1e9, 2)
            << " billion parameters, batches of " << model.batch << " sequences of "
            << model.sequence << " tokens\n"
            << o.wanted.gpus << " x " << machine_line(machine) << "\n";
  return print_found(found, o.top);
}

int print_graph_plans(const PlanOptions& o, const Machine& machine) {
  const std::pair<const char*, bool> options[] = {
      {"--tp", o.wanted.tensor.has_value()},
      {"--pp", o.wanted.pipeline.has_value()},
      {"--cp", o.wanted.context.has_value()},
      {"--ep", o.wanted.expert.has_value()},
      {"--micro-batch", o.wanted.micro_batch.has_value()},
      {"--interleave", o.wanted.interleave.has_value()},
      {"--batch", o.batch.has_value()},
      {"--sequence", o.sequence.has_value()},
      {"--recompute", !o.recompute.empty()},
      {"--fused-loss", o.fused_loss}};
  for (const auto& [name, given] : options) {
    if (!given) continue;
    fail(ErrorCode::kValue, "[plan] ", name,
         " is for a --model: a --graph is the step of each rank, for --dp and --zero");
  }
  if (o.wanted.data && *o.wanted.data != o.wanted.gpus) {
    fail(ErrorCode::kValue, "[plan] --dp ", *o.wanted.data, " of ", o.wanted.gpus,
         " GPUs: a --graph is the step of each of them");
  }
  const graph::Graph graph = read_graph(o.graph);
  const plan::Captured captured = bench::captured_step(graph);
  double parameters = 0;
  for (const auto& parameter : captured.parameters) parameters += parameter.bytes;
  const Found found = plan::search(captured, machine, o.wanted.gpus, o.wanted.zero);
  std::cout << o.graph << ": " << captured.kernels.size() << " kernels, "
            << captured.parameters.size() << " parameters of " << fixed(parameters / 1e6, 1)
            << " MB\n"
            << o.wanted.gpus << " x " << machine_line(machine) << "\n";
  return print_found(found, o.top);
}

int print_published(const Machine& machine) {
  std::ostream& out = std::cout;
  out << "Megatron-LM's table (README.md), sequences of 4096 tokens, on " << machine_line(machine)
      << "\n\nmodel       GPUs   tp   pp  micro  stages  recompute  measured   predicted    "
         "error\n";
  double worst = 0;
  for (const plan::Compared& c : plan::compare_with_megatron(machine)) {
    const plan::Layout& l = c.plan.layout;
    out << std::left << std::setw(10) << c.measured.model << std::right << std::setw(6) << l.gpus()
        << std::setw(5) << l.tensor << std::setw(5) << l.pipeline << std::setw(7) << l.micro_batch
        << std::setw(8) << l.interleave << "  " << std::left << std::setw(9)
        << plan::recompute_name(l.recompute) << std::right << std::setw(10)
        << fixed(c.measured.teraflops, 1) << std::setw(12)
        << fixed(c.measured.teraflops * (1 + c.error), 1) << std::setw(9) << percent(c.error)
        << "\n";
    worst = std::max(worst, std::abs(c.error));
  }
  out << "\nTFLOP/s of a GPU; the largest error is " << percent(worst) << "\n";
  return 0;
}

int print_calibrated(const Machine& machine, const std::vector<plan::Point>& points) {
  const Machine fitted = plan::calibrated(machine, points);
  std::cout << plan::machine_text(fitted);
  std::cerr << "measured      before        fitted, in us\n";
  for (const plan::Point& p : points) {
    std::cerr << std::right << std::setw(10) << fixed(1e6 * p.seconds, 1) << std::setw(12)
              << fixed(1e6 * plan::predicted_seconds(machine, p), 1) << std::setw(14)
              << fixed(1e6 * plan::predicted_seconds(fitted, p), 1) << "  " << p.kind << "\n";
  }
  return 0;
}

// Measures the device here, and collectives among 2, 4, ... ranks in processes of their own.
int measure(const PlanOptions& o) {
  load_default_backends();
  const Device device(o.measure);
  std::vector<plan::Point> points = measure_device_points(device, o.seconds);
  const int most = o.ranks > 0 ? o.ranks : device.is_cpu() ? 1 : device_count(device.type);
  for (int ranks = 2; ranks <= most; ranks = ranks < most ? std::min(2 * ranks, most) : most + 1) {
    const std::vector<plan::Point> found =
        launch_collectives(device, ranks, o.most, std::max(o.seconds / 2, 0.001));
    points.insert(points.end(), found.begin(), found.end());
  }
  if (!o.points.empty()) write_points(points, o.points);
  const Machine machine = o.machine.empty() ? machine_of_device(device, o.gpu, o.network, points)
                                            : plan::read_machine(o.machine);
  return print_calibrated(machine, points);
}

int run_plan(PlanOptions& o) {
  if (!o.measure.empty()) return measure(o);
  const Machine machine = o.machine.empty()
                              ? plan::machine_of(o.gpu.empty() ? "h100" : o.gpu, o.network)
                              : plan::read_machine(o.machine);
  if (!o.calibrate.empty()) return print_calibrated(machine, plan::read_points(o.calibrate));
  if (o.published) return print_published(machine);
  if (!o.recompute.empty()) {
    o.wanted.recompute = o.recompute == "none"        ? plan::Recompute::kNone
                         : o.recompute == "selective" ? plan::Recompute::kSelective
                                                      : plan::Recompute::kFull;
  }
  if (!o.graph.empty() && !o.model.empty()) {
    throw Error(ErrorCode::kValue, "[plan] give either --model or --graph");
  }
  return o.graph.empty() ? print_plans(o, machine) : print_graph_plans(o, machine);
}

}  // namespace

Run add_plan(CLI::App& app) {
  auto o = std::make_shared<PlanOptions>();
  Wanted& w = o->wanted;
  app.add_option("--model", o->model, "A model's name, or a Hugging Face config.json");
  app.add_option("--graph", o->graph,
                 "A captured step of one rank in place of a model: a program that save() wrote, or "
                 "the text of its graph");
  app.add_option("--gpus", w.gpus, "Number of GPUs");
  app.add_option("--gpu", o->gpu, "a100, h100 (default), h200 or b200");
  app.add_option("--network", o->network, "ib200, ib400, ib800, eth100 or eth400")
      ->capture_default_str();
  app.add_option("--machine", o->machine, "A machine file, in place of both");
  app.add_option("--batch", o->batch, "Sequences of a step (default: the model's)");
  app.add_option("--sequence", o->sequence, "Tokens of a sequence (default: the model's)");
  app.add_option("--dp", w.data, "Data parallelism; what is not given is searched");
  app.add_option("--tp", w.tensor, "Tensor parallelism");
  app.add_option("--pp", w.pipeline, "Pipeline parallelism");
  app.add_option("--cp", w.context, "Context parallelism");
  app.add_option("--ep", w.expert, "Expert parallelism");
  app.add_option("--zero", w.zero, "Stage of ZeRO, 0 to 3");
  app.add_option("--micro-batch", w.micro_batch, "Sequences of a micro-batch");
  app.add_option("--interleave", w.interleave, "Stages of a rank");
  app.add_option("--recompute", o->recompute, "Activation checkpointing: none, selective or full")
      ->check(CLI::IsMember({"none", "selective", "full"}));
  app.add_flag("--fused-loss", o->fused_loss,
               "Compute head and loss together (linear_cross_entropy), without whole logits");
  app.add_option("--top", o->top, "Rows to print")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_flag("--published", o->published, "Compare predictions with Megatron-LM's table instead");
  app.add_option("--calibrate", o->calibrate,
                 "Fit the machine to measured points, and print its machine file instead");
  app.add_option("--measure", o->measure,
                 "Measure this device (cpu, cuda) and its collectives, and print a machine file "
                 "instead");
  app.add_option("--ranks", o->ranks,
                 "Of --measure: the most ranks of collectives (default: all devices; none on the "
                 "CPU)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seconds", o->seconds, "Of --measure: measuring time of a point")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  app.add_option("--most", o->most,
                 "Of --measure: the most bytes of collectives (default: 1 GiB, on the CPU 64 MiB)")
      ->check(CLI::Range(8.0, 1e12));
  app.add_option("--points", o->points,
                 "Of --measure: write the points to this file, for --calibrate");
  return [o] { return run_plan(*o); };
}

}  // namespace mytorch::tools
