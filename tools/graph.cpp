// `mytorch graph`.
#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/graph_cost.h"
#include "bench/harness/runner.h"
#include "core/types/errors.h"
#include "graph/formats/picture.h"
#include "mytorch/rewrite.h"
#include "mytorch/threads.h"
#include "tools/commands.h"
#include "tools/read_graph.h"

namespace mytorch::tools {
namespace {

using graph::Graph;
using graph::GraphNode;

struct GraphArguments {
  std::string file;
  std::string dot;
  std::string svg;
  bool no_cost = false;
  bool passes = false;
};

std::string scaled(double x, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  size_t at = 0;
  for (; x >= 1000 && at + 1 < std::size(kPrefixes); ++at) x /= 1000;
  std::ostringstream text;
  text << std::setprecision(3) << x << " " << kPrefixes[at] << unit;
  return text.str();
}

// Prints a line per node: what it computes, what it moves, and the time that this machine needs at
// least for either.
void print_costs(const Graph& graph) {
  const bench::GraphCosts costs(graph);
  Device device;
  for (const graph::GraphBuffer& buffer : graph.buffers) {
    if (!buffer.device.is_cpu()) device = buffer.device;
  }
  const bench::Machine machine =
      device.is_cpu() ? bench::measure_machine(num_threads()) : bench::measure_device(device);
  std::cout << "\n"
            << device.str() << ": copies " << scaled(machine.copy, "B/s") << ", computes "
            << scaled(machine.multiply_add, "FLOP/s") << "\n\n";
  std::cout << std::right << std::setw(12) << "flops" << std::setw(12) << "bytes" << std::setw(12)
            << "time, us"
            << "  node\n";
  const auto row = [](const bench::NodeCost& cost, double seconds, const std::string& name) {
    std::cout << std::setw(12) << scaled(cost.flops, "") << std::setw(12) << scaled(cost.bytes, "B")
              << std::setw(12) << std::fixed << std::setprecision(2) << seconds * 1e6
              << std::defaultfloat << "  " << name << "\n";
  };
  bench::NodeCost total;
  double time = 0;
  std::set<std::string> unknown;
  for (const GraphNode& node : graph.nodes) {
    const bench::NodeCost cost = costs.of(node);
    if (!cost.known) unknown.insert(node.op().name);
    const double seconds = std::max(cost.flops / machine.multiply_add, cost.bytes / machine.copy);
    row(cost, seconds, to_text(graph, node));
    total.flops += cost.flops;
    total.bytes += cost.bytes;
    time += seconds;
  }
  row(total, time, "in all");
  if (!unknown.empty()) {
    std::cout << "\nBytes alone are known of";
    for (const std::string& name : unknown) std::cout << " " << name;
    std::cout << ".\n";
  }
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text).flush()) {
    fail(ErrorCode::kIo, "[graph] file ", path, " cannot be written");
  }
}

int print_passes() {
  for (const graph::CompilePass& pass : graph::compile_passes()) {
    std::cout << std::left << std::setw(24) << pass.name << pass.summary << "\n";
  }
  return 0;
}

int run(const GraphArguments& arguments) {
  if (arguments.passes) return print_passes();
  if (arguments.file.empty()) fail(ErrorCode::kValue, "[graph] expected a file, or --passes");
  const Graph graph = read_graph(arguments.file);
  std::cout << to_text(graph);
  if (!arguments.no_cost) print_costs(graph);
  if (!arguments.dot.empty()) write_file(arguments.dot, to_dot(graph));
  if (!arguments.svg.empty()) write_file(arguments.svg, to_svg(graph));
  return 0;
}

}  // namespace

Run add_graph(CLI::App& app) {
  auto arguments = std::make_shared<GraphArguments>();
  app.add_option("file", arguments->file, "a program, or the text of a graph");
  app.add_option("--dot", arguments->dot, "write a picture in Graphviz's language to this file");
  app.add_option("--svg", arguments->svg, "write a picture as SVG to this file");
  app.add_flag("--no-cost", arguments->no_cost, "measure nothing, and print the text alone");
  app.add_flag("--passes", arguments->passes, "print the passes and stages of compiling, in order");
  return [arguments] { return run(*arguments); };
}

}  // namespace mytorch::tools
