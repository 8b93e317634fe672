#include "backends/cuda/reduction/text.h"

#include <string_view>
#include <vector>

namespace mytorch::cuda {
namespace {

using namespace reduce_key;

bool is_sum(const Program& program) { return program.fold == "sum" || program.fold == "prod"; }

// Returns the type of the values that are pushed. Sums of bools are counts.
std::string pushed(const Program& program, Code compute) {
  if (is_sum(program) && compute == kBool) return "i64";
  return value_name(program.nodes[static_cast<size_t>(program.step)].type, compute);
}

}  // namespace

std::string state_name(const Program& program, Code compute) {
  const std::string v = pushed(program, compute);
  const std::string& fold = program.fold;
  if (fold == "sum") return "SumFold<" + v + ">";
  if (fold == "prod") return "ProdFold<" + v + ">";
  if (fold == "max" || fold == "min") {
    return "BestFold<" + v + (fold == "max" ? ", true>" : ", false>");
  }
  if (fold == "argmax" || fold == "argmin") {
    return "BestIndexFold<" + v + (fold == "argmax" ? ", true>" : ", false>");
  }
  if (fold == "all" || fold == "any") {
    return "LogicFold<" + v + (fold == "all" ? ", true>" : ", false>");
  }
  return (fold == "welford" ? "WelfordFold<" : "LogSumExpFold<") + v + ">";
}

std::string component_text(const Program& program, const std::string& state, int32_t component) {
  if (program.fold == "welford" && component == 1) return state + ".mean()";
  return state + ".c" + std::to_string(component);
}

namespace {

class Text {
 public:
  Text(const Program& program, const Key& key)
      : program_(program),
        key_(key),
        compute_(key.get(kCompute)),
        form_(key.get(kForm)),
        split_((key.get(kFlags) & kSplit) != 0) {
    int byte = kOperands;
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      const uint8_t bits = key.get(byte++);
      inputs_.push_back({static_cast<Kind>(bits >> 4), static_cast<Code>(bits & 15),
                         &program.inputs[i], "i" + std::to_string(i)});
    }
    std::vector<int32_t> roots;
    for (size_t i = 0; i < program.outputs.size(); ++i) {
      const uint8_t bits = key.get(byte++);
      if (bits == 0) continue;
      outputs_.push_back({static_cast<Kind>(bits >> 4), static_cast<Code>(bits & 15),
                          &program.outputs[i], "o" + std::to_string(i)});
      roots.push_back(program.outputs[i].node);
    }
    ends_ = program.needed(roots);
    const int32_t step[] = {program.step};
    steps_ = program.needed(step);
  }

  std::string text() {
    add("\n// " + program_.name);
    add("typedef " + state_name(program_, compute_) + " S;");
    parameters();
    step();
    finish();
    // Launch bounds that leave enough registers for all loads to be in flight; otherwise ptxas
    // waits for the first one.
    add("extern \"C\" __global__ void __launch_bounds__(" + std::to_string(kReduceThreads) +
        ", 3) kernel(const __grid_constant__ P p) {");
    add("  begin();");
    fold();
    add("}");
    return std::move(text_);
  }

 private:
  struct ReduceOperand {
    Kind kind;
    Code type;
    const Program::Argument* argument;
    std::string name;
  };

  void add(const std::string& line) { text_ += line + "\n"; }
  std::string value(int32_t type) const { return value_name(type, compute_); }
  static std::string v(int32_t node) { return "v" + std::to_string(node); }
  bool is_read(const ReduceOperand& o) const {
    return o.kind == Kind::kElements && steps_[static_cast<size_t>(o.argument->node)];
  }
  int num_strided() const {
    int n = 0;
    for (const ReduceOperand& o : inputs_) n += o.kind == Kind::kElements ? 1 : 0;
    return n;
  }
  std::string strided(int operands, int dims, uint8_t wide) const {
    return "Strided<" + std::to_string(operands) + ", " + std::to_string(dims) + ", " +
           ((key_.get(kFlags) & wide) != 0 ? "true>" : "false>");
  }

  void parameters() {
    add("struct P {");
    for (const ReduceOperand& o : inputs_) {
      if (o.kind == Kind::kElements) {
        add("  const " + std::string(type_name(o.type)) + "* " + o.name + ";");
      } else if (o.kind == Kind::kNumber) {
        add("  Scalar<" + value(o.argument->type) + "> " + o.name + ";");
      }
    }
    for (const Program::Argument& s : program_.scalars) {
      add("  Scalar<" + value(s.type) + "> s" + std::to_string(s.node) + ";");
    }
    for (const ReduceOperand& o : outputs_) {
      add("  " + std::string(type_name(o.type)) + "* " + o.name + ";");
    }
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      if (std::string_view(program_.nodes[i].op) != "count") continue;
      add("  Scalar<" + value(program_.nodes[i].type) + "> n" + std::to_string(i) + ";");
    }
    add("  i64 kept;");
    add("  i64 reduced;");
    if (program_.divides(compute_)) add("  Faults faults;");
    const int outputs = static_cast<int>(outputs_.size());
    const int inputs = num_strided();
    add("  " + strided(inputs + outputs, key_.get(kKeptDims), kWideKept) + " results;");
    add("  " + strided(inputs, key_.get(kReducedDims), kWideReduced) + " elements;");
    if (form_ == kColumns) add("  i64 apart[" + std::to_string(outputs) + "];");
    if (split_) {
      add("  S* states;");
      add("  u32* counters;");
    }
    add("};");
  }

  void scalars(const std::vector<bool>& wanted) {
    for (const Program::Argument& s : program_.scalars) {
      if (!wanted[static_cast<size_t>(s.node)]) continue;
      add("  const " + value(s.type) + " " + v(s.node) + " = p.s" + std::to_string(s.node) +
          ".value;");
    }
  }

  // Emits the computation of the pushed value from one element.
  void step() {
    const int32_t root = program_.step;
    std::string arguments = "const P& p";
    for (const ReduceOperand& o : inputs_) {
      if (is_read(o)) arguments += ", const " + value(o.argument->type) + " " + v(o.argument->node);
    }
    add("FN " + value(program_.nodes[static_cast<size_t>(root)].type) + " step(" + arguments +
        ") {");
    for (const ReduceOperand& o : inputs_) {
      if (is_read(o) || !steps_[static_cast<size_t>(o.argument->node)]) continue;
      add("  const " + value(o.argument->type) + " " + v(o.argument->node) + " = " +
          (o.kind == Kind::kNumber ? "p." + o.name + ".value" : std::string("0")) + ";");
    }
    scalars(steps_);
    text_ += program_.text(steps_, compute_);
    add("  return " + v(root) + ";");
    add("}");
  }

  // Emits the computation of the outputs from a state.
  void finish() {
    std::string arguments = "const P& p, const S& s";
    for (const ReduceOperand& o : outputs_) {
      arguments += ", " + std::string(type_name(o.type)) + "* " + o.name;
    }
    add("FN void finish(" + arguments + ") {");
    scalars(ends_);
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      if (!ends_[i]) continue;
      const mt_node& node = program_.nodes[i];
      const std::string_view op = node.op;
      const std::string left = "  const " + value(node.type) + " " + v(static_cast<int32_t>(i));
      const std::string component = component_text(program_, "s", node.component);
      if (op == "count") add(left + " = p.n" + std::to_string(i) + ".value;");
      if (op != "state") continue;
      if (node.type == MT_TYPE_COMPUTE) {
        add(left + " = cast<" + type_name(compute_) + ">(" + component + ");");
      } else if (node.type == MT_TYPE_INDEX) {
        add(left + " = " + component + " < 0 ? 0 : " + component + ";");
      } else {
        add(left + " = " + component + " != 0;");
      }
    }
    text_ += program_.text(ends_, compute_);
    for (const ReduceOperand& o : outputs_) {
      add("  *" + o.name + " = convert<" + type_name(o.type) + ">(" + v(o.argument->node) + ");");
    }
    add("}");
  }

  // Emits the pushes of `u` runs, beginning at run r.
  void pushes(const std::string& u) {
    const bool rows = form_ == kRows;
    for (const ReduceOperand& o : inputs_) {
      if (!is_read(o)) continue;
      add("      Pack<" + std::string(type_name(o.type)) + ", V> a_" + o.name + "[" + u + "];");
    }
    add("#pragma unroll");
    add("      for (int u = 0; u < " + u + "; ++u) {");
    add("        i64 to[" + std::to_string(num_strided()) + "];");
    add("        offsets(p.elements, r + u * threads, to);");
    const std::string load = (key_.get(kFlags) & kStreaming) != 0 ? "load_streaming" : "load";
    int index = 0;
    for (const ReduceOperand& o : inputs_) {
      if (o.kind != Kind::kElements) continue;
      const std::string at = std::to_string(index++);
      if (is_read(o)) {
        add("        a_" + o.name + "[u] = " + load + "<V>(" + o.name + " + to[" + at + "]);");
      }
    }
    add("      }");
    add("#pragma unroll");
    add("      for (int u = 0; u < " + u + "; ++u) {");
    add("#pragma unroll");
    add("        for (int k = 0; k < V; ++k) {");
    std::string call = "step(p";
    for (const ReduceOperand& o : inputs_) {
      if (!is_read(o)) continue;
      const std::string element = "a_" + o.name + "[u].at[k]";
      call += o.argument->type == MT_TYPE_COMPUTE
                  ? ", input<" + std::string(type_name(compute_)) + ">(" + element + ")"
                  : ", convert<" + value(o.argument->type) + ">(" + element + ")";
    }
    add("          s[k].push(" + call + "), " +
        (rows ? "(r + u * threads) * V + k" : "r + u * threads") + ");");
    add("        }");
    add("      }");
  }

  void fold() {
    const bool rows = form_ == kRows;
    const std::string across = rows ? "y" : "x";  // the direction of results
    const std::string along = rows ? "x" : "y";   // the direction of the reduction
    const int inputs = num_strided();
    const int outputs = static_cast<int>(outputs_.size());
    add("  constexpr int V = " + std::to_string(key_.get(kRun)) +
        ", U = " + std::to_string(kReduceUnroll) + ";");
    add("  const i64 result = static_cast<i64>(blockIdx.x) * blockDim." + across + " + threadIdx." +
        across + ";");
    add("  const bool live = result < p.kept;");
    add("  i64 at[" + std::to_string(inputs + outputs) + "];");
    add("  S s[V];");
    add("#pragma unroll");
    add("  for (int k = 0; k < V; ++k) s[k].clear();");
    add("  if (live) {");
    add("    offsets(p.results, result, at);");
    int index = 0;
    for (const ReduceOperand& o : inputs_) {
      if (o.kind != Kind::kElements) continue;
      const std::string number = std::to_string(index++);
      if (!is_read(o)) continue;
      add("    const " + std::string(type_name(o.type)) + "* const " + o.name + " = p." + o.name +
          " + at[" + number + "];");
    }
    // Blocks interleave, so that concurrent loads are close together.
    add("    const i64 threads = blockDim." + along + ";");
    add("    const i64 every = gridDim.y * U * threads;");
    add("    i64 r = blockIdx.y * U * threads + threadIdx." + along + ";");
    add("    for (; r + (U - 1) * threads < p.reduced; r += every) {");
    pushes("U");
    add("    }");
    add("#pragma unroll 1");
    add("    for (int left = U; left > 0 && r < p.reduced; --left, r += threads) {");
    pushes("1");
    add("    }");
    add("  }");
    const std::string condition = "live && threadIdx." + along + " == 0";
    join(rows);
    if (split_) {
      const std::string place = rows ? "p.kept + result" : "p.kept * V + result * V + k";
      add("  if (" + condition + ") {");
      add("#pragma unroll");
      add("    for (int k = 0; k < (" + std::string(rows ? "1" : "V") +
          "); ++k) p.states[blockIdx.y * " + place + "] = s[k];");
      add("  }");
      add("  if (!is_last(p.counters)) return;");
      add("#pragma unroll");
      add("  for (int k = 0; k < V; ++k) s[k].clear();");
      add("  if (live) {");
      add("#pragma unroll 8");
      add("    for (i64 r = threadIdx." + along + "; r < gridDim.y; r += blockDim." + along +
          ") {");
      add("#pragma unroll");
      add("      for (int k = 0; k < (" + std::string(rows ? "1" : "V") +
          "); ++k) s[k].merge(read_state(p.states + r * " + place + "));");
      add("    }");
      add("  }");
      join(rows);
    }
    add("  if (!(" + condition + ")) return;");
    if (!rows) add("#pragma unroll");
    std::string call = rows ? "  finish(p, s[0]" : "  for (int k = 0; k < V; ++k) finish(p, s[k]";
    for (size_t i = 0; i < outputs_.size(); ++i) {
      call += ", p." + outputs_[i].name + " + at[" + std::to_string(inputs + static_cast<int>(i)) +
              "]" + (rows ? "" : " + k * p.apart[" + std::to_string(i) + "]");
    }
    add(call + ");");
  }

  void join(bool rows) {
    if (rows) {
      add("  join_lanes(s);");
      add("  join_x(s[0]);");
    } else {
      add("  join_y(s);");
    }
  }

  const Program& program_;
  const Key& key_;
  const Code compute_;
  const uint8_t form_;
  const bool split_;
  std::vector<ReduceOperand> inputs_;
  std::vector<ReduceOperand> outputs_;
  std::vector<bool> steps_;
  std::vector<bool> ends_;
  std::string text_;
};

}  // namespace

std::string reduce_text(const Program& program, const Key& key) {
  return Text(program, key).text();
}

int state_size(const Program& program, Code compute) {
  const std::string v = pushed(program, compute);
  const int value = v == "i64" || v == "double" ? 8 : 4;
  if (program.fold == "argmax" || program.fold == "argmin") return 16;
  if (program.fold == "welford") return 4 * value;
  return program.fold == "logsumexp" ? 2 * value : value;
}

}  // namespace mytorch::cuda
