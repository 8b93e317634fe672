// `mytorch graph`.
#include <algorithm>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/harness/cost.h"
#include "bench/harness/runner.h"
#include "conformance/catalog.h"
#include "conformance/custom.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "graph/formats/parse.h"
#include "graph/formats/picture.h"
#include "mytorch/program.h"
#include "mytorch/rewrite.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/threads.h"
#include "tools/commands.h"

namespace mytorch::tools {
namespace {

using graph::Arg;
using graph::Graph;
using graph::GraphNode;
using graph::kNoValue;
using graph::ValueId;
using graph::ValueInfo;

struct GraphArguments {
  std::string file;
  std::string dot;
  std::string svg;
  bool no_cost = false;
  bool passes = false;
};

// The tensors of one node, which stand for those of a run: their memory is never touched.
class StandIns {
 public:
  explicit StandIns(const Graph& graph) : graph_(graph) {}

  Tensor tensor(ValueId id) {
    if (id == kNoValue) return {};
    const ValueInfo& info = graph_.values[id];
    Tensor& memory = memories_[info.buffer];
    if (!memory.defined()) {
      const auto bytes =
          static_cast<int64_t>(std::max<uint64_t>(graph_.buffers[info.buffer].bytes, 1));
      memory = Tensor::adopt(new_tensor(&bytes, 1, kUInt8, kCPU, kCpuSlot));
    }
    detail::retain(memory.impl()->storage);
    return Tensor::adopt(new_tensor_over(memory.impl()->storage, as_list(info.sizes),
                                         as_list(info.strides), info.dtype, info.offset));
  }
  Value value(const Arg& arg) {
    if (arg.kind == Arg::kConstant) return arg.constant;
    if (arg.kind == Arg::kTensor)
      return arg.values[0] == kNoValue ? Value() : tensor(arg.values[0]);
    std::vector<Tensor> list;
    for (const ValueId id : arg.values) list.push_back(tensor(id));
    return list;
  }

 private:
  const Graph& graph_;
  std::map<int32_t, Tensor> memories_;
};

struct Cost {
  double flops = 0;
  double bytes = 0;
};

Cost cost_of(const Graph& graph, const GraphNode& node, const conformance::OpRecord* record) {
  if (record == nullptr || node.op().meaning == Meaning::kView) return {};
  StandIns tensors(graph);
  std::vector<Value> args, results;
  const auto outs = static_cast<size_t>(node.form == kOut ? node.outs() : 0);
  for (size_t i = 0; i < node.args.size(); ++i) {
    (i < outs ? results : args).push_back(tensors.value(node.args[i]));
  }
  for (const Arg& result : node.results) results.push_back(tensors.value(result));
  if (node.form == kInplace) results.push_back(args.at(0));
  const double flops = bench::call_flops(*record, node.op(), args, results);
  return {flops, bench::call_bytes(*record, args, results, node.form == kInplace).total()};
}

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
  const auto catalog = conformance::all_records(conformance::share_folder());
  std::map<std::string, const conformance::OpRecord*> records;
  for (const auto& record : catalog) records[record.name] = &record;
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
  const auto row = [](const Cost& cost, double seconds, const std::string& name) {
    std::cout << std::setw(12) << scaled(cost.flops, "") << std::setw(12) << scaled(cost.bytes, "B")
              << std::setw(12) << std::fixed << std::setprecision(2) << seconds * 1e6
              << std::defaultfloat << "  " << name << "\n";
  };
  Cost total;
  double time = 0;
  std::set<std::string> unknown;
  for (const GraphNode& node : graph.nodes) {
    const auto found = records.find(node.op().name);
    const conformance::OpRecord* record = found == records.end() ? nullptr : found->second;
    const Cost cost = cost_of(graph, node, record);
    const bool known = record != nullptr && (record->cost.contains("flops") ||
                                             node.op().num_programs > 0 || cost.bytes == 0);
    if (!known) unknown.insert(node.op().name);
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

// Reads a program, or the text of a graph.
Graph read_graph(const std::string& path) {
  std::ifstream file(path);
  char begin[6] = {};
  file.read(begin, sizeof(begin));
  const bool is_text = file && std::string(begin, sizeof(begin)) == "graph(";
  file.seekg(0);
  if (!is_text) return graph::parse_text(load(path).text());
  return graph::parse_text(std::string(std::istreambuf_iterator<char>(file), {}));
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
