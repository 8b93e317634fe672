#include "backends/cuda/pointwise/text.h"

#include <vector>

#include "backends/cuda/programs/compiler.h"

namespace mytorch::cuda {
namespace {

using namespace pointwise_key;

struct PointwiseOperand {
  Kind kind;
  Code type;
  const Program::Argument* argument;
  bool output;
  std::string name;   // "i0", "o1": the parameter
  std::string value;  // C++ type of the node
  int index = -1;     // among the operands of the loop

  bool in_memory() const {
    return kind == Kind::kElements || kind == Kind::kRepeated || kind == Kind::kTransposed;
  }
};

class Text {
 public:
  Text(const Program& program, const Key& key)
      : program_(program),
        compute_(key.get(kCompute)),
        line_(key.get(kForm) == kLine),
        wide_(key.get(kForm) == kWide),
        tiled_(key.get(kForm) == kTiled),
        any_(key.get(kForm) == kAny),
        run_(key.get(kRun)),
        dims_(key.get(kDims)),
        unroll_(runs_of(program, key)) {
    std::vector<int32_t> roots;
    int byte = kOperands;
    const auto add = [&](const Program::Argument& argument, bool output, size_t i) {
      const uint8_t bits = any_ ? operand_key(Kind::kElements, 0) : key.get(byte++);
      PointwiseOperand operand{static_cast<Kind>(bits >> 4),
                               static_cast<Code>(bits & 15),
                               &argument,
                               output,
                               (output ? "o" : "i") + std::to_string(i),
                               value_name(argument.type, compute_)};
      if (operand.in_memory()) operand.index = num_strided_++;
      if (output && operand.kind != Kind::kAbsent) roots.push_back(argument.node);
      operands_.push_back(std::move(operand));
    };
    for (size_t i = 0; i < program.inputs.size(); ++i) add(program.inputs[i], false, i);
    for (size_t i = 0; i < program.outputs.size(); ++i) add(program.outputs[i], true, i);
    needed_ = program.needed(roots);
  }

  std::string text() {
    text_ = "\n// " + program_.name + "\n";
    parameters();
    body();
    if (line_) {
      line();
    } else if (any_) {
      any();
    } else if (tiled_) {
      tiled();
    } else {
      strided();
    }
    return std::move(text_);
  }

 private:
  void add(const std::string& line) { text_ += line + "\n"; }

  void parameters() {
    add("struct P {");
    for (const PointwiseOperand& o : operands_) {
      if (o.output || o.kind == Kind::kAbsent) continue;
      if (any_) {
        add("  u64 " + o.name + ";");
      } else if (o.kind == Kind::kNumber) {
        add("  Scalar<" + o.value + "> " + o.name + ";");
      } else {
        add("  const " + std::string(type_name(o.type)) + "* " + o.name + ";");
      }
    }
    for (const Program::Argument& s : program_.scalars) {
      add("  Scalar<" + std::string(value_name(s.type, compute_)) + "> s" + std::to_string(s.node) +
          ";");
    }
    for (const PointwiseOperand& o : operands_) {
      if (o.output && o.kind != Kind::kAbsent) {
        add((any_ ? std::string("  u64 ") : "  " + std::string(type_name(o.type)) + "* ") + o.name +
            ";");
      }
    }
    add("  i64 n;");
    if (program_.divides(compute_)) add("  Faults faults;");
    if (any_) add("  u64 types;");
    if (!line_) {
      add("  Strided<" + std::to_string(num_strided_ + (tiled_ ? 2 : 0)) + ", " +
          std::to_string(dims_) + ", " + (wide_ ? "true" : "false") + "> loop;");
    }
    if (tiled_) {
      add("  i64 size[2];");
      add("  i64 stride[" + std::to_string(num_strided_) + "][2];");
    }
    add("};");
  }

  // Emits the computation of one element: inputs in memory are passed by value, results by
  // reference.
  void body() {
    std::string arguments = "const P& p";
    std::string values;
    for (const PointwiseOperand& o : operands_) {
      const std::string node = std::to_string(o.argument->node);
      if (o.output) {
        if (o.kind != Kind::kAbsent) arguments += ", " + o.value + "& " + o.name;
        continue;
      }
      if (!needed_[static_cast<size_t>(o.argument->node)]) continue;
      if (o.in_memory() || o.kind == Kind::kSingle) {
        arguments += ", const " + o.value + " v" + node;
      } else if (o.kind == Kind::kNumber) {
        values += "  const " + o.value + " v" + node + " = p." + o.name + ".value;\n";
      } else {  // its results are unused
        values += "  const " + o.value + " v" + node + " = 1;\n";
      }
    }
    for (const Program::Argument& s : program_.scalars) {
      if (!needed_[static_cast<size_t>(s.node)]) continue;
      const std::string node = std::to_string(s.node);
      values += "  const " + std::string(value_name(s.type, compute_)) + " v" + node + " = p.s" +
                node + ".value;\n";
    }
    add("FN void body(" + arguments + ") {");
    text_ += values + program_.text(needed_, compute_);
    for (const PointwiseOperand& o : operands_) {
      if (o.output && o.kind != Kind::kAbsent) {
        add("  " + o.name + " = v" + std::to_string(o.argument->node) + ";");
      }
    }
    add("}");
    // Launch bounds that leave enough registers for all loads to be in flight; otherwise ptxas
    // interleaves them with the computation.
    const bool small = compute_ < kFloat64 && operands_.size() <= 5;
    const std::string bounds = tiled_  ? std::to_string(kTile * kTileRows) + ", 3"
                               : small ? std::to_string(kPointwiseThreads) + ", 10"
                                       : std::to_string(kPointwiseThreads) + ", 6";
    add("extern \"C\" __global__ void __launch_bounds__(" + bounds +
        ") kernel(const __grid_constant__ P p) {");
    add("  begin();");
    add("  constexpr int T = " + std::to_string(kPointwiseThreads) +
        ", V = " + std::to_string(run_) + ", U = " + std::to_string(unroll_) + ";");
    for (const PointwiseOperand& o : operands_) {
      if (o.kind == Kind::kSingle && is_read(o)) {
        add("  const " + o.value + " x_" + o.name + " = " + convert(o, "*p." + o.name) + ";");
      }
    }
  }

  bool is_read(const PointwiseOperand& o) const {
    return !o.output && needed_[static_cast<size_t>(o.argument->node)] && o.kind != Kind::kAbsent &&
           o.kind != Kind::kNumber;
  }
  std::string convert(const PointwiseOperand& o, const std::string& element) const {
    if (any_) return element;
    if (o.argument->type == MT_TYPE_COMPUTE) {
      return "input<" + std::string(type_name(compute_)) + ">(" + element + ")";
    }
    return "convert<" + o.value + ">(" + element + ")";
  }
  // Returns a call of body(p, ...) with inputs named by element(operand) and results by
  // result(operand).
  template <class Element, class Result>
  std::string call(Element&& element, Result&& result) const {
    std::string text = "body(p";
    for (const PointwiseOperand& o : operands_) {
      if (o.output) {
        if (o.kind != Kind::kAbsent) text += ", " + result(o);
      } else if (is_read(o)) {
        text += ", " + (o.kind == Kind::kSingle ? "x_" + o.name : convert(o, element(o)));
      }
    }
    return text + ");";
  }
  // Emits the computation of run u, with results stored at place(operand).
  template <class Place>
  void compute_run(const char* indent, Place&& place) {
    const std::string in = indent;
    for (const PointwiseOperand& o : operands_) {
      if (o.output && o.kind != Kind::kAbsent) add(in + o.value + " y_" + o.name + "[V];");
    }
    add("#pragma unroll");
    add(in + "for (int k = 0; k < V; ++k) {");
    add(in + "  " +
        call(
            [](const PointwiseOperand& o) {
              return "a_" + o.name + (o.kind == Kind::kRepeated ? "[u].at[0]" : "[u].at[k]");
            },
            [](const PointwiseOperand& o) { return "y_" + o.name + "[k]"; }));
    add(in + "}");
    for (const PointwiseOperand& o : operands_) {
      if (o.output && o.kind != Kind::kAbsent) {
        add(in + "store<V>(p." + o.name + " + " + place(o) + ", y_" + o.name + ");");
      }
    }
  }
  void declare_runs() {
    for (const PointwiseOperand& o : operands_) {
      if (!is_read(o) || !o.in_memory()) continue;
      add("  Pack<" + std::string(type_name(o.type)) +
          (o.kind == Kind::kRepeated ? ", 1> a_" : ", V> a_") + o.name + "[U];");
    }
  }

  void line() {
    add("  const i64 tile = static_cast<i64>(blockIdx.x) * (T * V * U);");
    add("  if (tile + T * V * U > p.n) {");
    add("#pragma unroll 1");
    add("    for (i64 i = tile + threadIdx.x; i < p.n; i += T) {");
    for (const PointwiseOperand& o : operands_) {
      if (o.output && o.kind != Kind::kAbsent) add("      " + o.value + " y_" + o.name + ";");
    }
    add("      " + call([](const PointwiseOperand& o) { return "p." + o.name + "[i]"; },
                        [](const PointwiseOperand& o) { return "y_" + o.name; }));
    for (const PointwiseOperand& o : operands_) {
      if (!o.output || o.kind == Kind::kAbsent) continue;
      add("      p." + o.name + "[i] = convert<" + type_name(o.type) + ">(y_" + o.name + ");");
    }
    add("    }");
    add("    return;");
    add("  }");
    add("  const i64 at = tile + threadIdx.x * V;");
    declare_runs();
    add("#pragma unroll");
    add("  for (int u = 0; u < U; ++u) {");
    for (const PointwiseOperand& o : operands_) {
      if (is_read(o) && o.in_memory()) {
        add("    a_" + o.name + "[u] = load<V>(p." + o.name + " + at + u * (T * V));");
      }
    }
    add("  }");
    add("#pragma unroll");
    add("  for (int u = 0; u < U; ++u) {");
    compute_run("    ", [](const PointwiseOperand&) { return std::string("at + u * (T * V)"); });
    add("  }");
    add("}");
  }

  void strided() {
    add("  const i64 first = static_cast<i64>(blockIdx.x) * (T * U) + threadIdx.x;");
    add("  i64 at[U][" + std::to_string(num_strided_) + "];");
    declare_runs();
    add("#pragma unroll");
    add("  for (int u = 0; u < U; ++u) {");
    add("    if (first + u * T >= p.n) break;");
    add("    offsets(p.loop, first + u * T, at[u]);");
    for (const PointwiseOperand& o : operands_) {
      if (!is_read(o) || !o.in_memory()) continue;
      add("    a_" + o.name + "[u] = load<" + (o.kind == Kind::kRepeated ? "1" : "V") + ">(p." +
          o.name + " + at[u][" + std::to_string(o.index) + "]);");
    }
    add("  }");
    add("#pragma unroll");
    add("  for (int u = 0; u < U; ++u) {");
    add("    if (first + u * T >= p.n) break;");
    compute_run("    ",
                [](const PointwiseOperand& o) { return "at[u][" + std::to_string(o.index) + "]"; });
    add("  }");
    add("}");
  }

  // Operand types are run-time parameters.
  void any() {
    const auto place = [](const PointwiseOperand& o) {
      const std::string k = std::to_string(o.index);
      return "(p." + o.name + ", p.types >> " + std::to_string(o.index * 4) + " & 15, at[" + k +
             "]";
    };
    add("  const i64 i = static_cast<i64>(blockIdx.x) * T + threadIdx.x;");
    add("  if (i >= p.n) return;");
    add("  i64 at[" + std::to_string(num_strided_) + "];");
    add("  offsets(p.loop, i, at);");
    for (const PointwiseOperand& o : operands_) {
      if (o.output) add("  " + o.value + " y_" + o.name + ";");
    }
    add("  " + call(
                   [&](const PointwiseOperand& o) {
                     const std::string type =
                         o.argument->type == MT_TYPE_COMPUTE ? type_name(compute_) : o.value;
                     return "any_input<" + type + ">" + place(o) + ")";
                   },
                   [](const PointwiseOperand& o) { return "y_" + o.name; }));
    for (const PointwiseOperand& o : operands_) {
      if (o.output) add("  any_output" + place(o) + ", y_" + o.name + ");");
    }
    add("}");
  }

  // Tiles: transposed operands are read along their own contiguous dimension and transposed in
  // shared memory.
  void tiled() {
    const auto number = [](const PointwiseOperand& o) { return std::to_string(o.index); };
    const auto place = [&](const PointwiseOperand& o, const char* x, const char* y) {
      return "p." + o.name + "[at[" + number(o) + "] + " + x + " * p.stride[" + number(o) +
             "][0] + " + y + " * p.stride[" + number(o) + "][1]]";
    };
    add("  constexpr int S = " + std::to_string(kTile) + ", W = " + std::to_string(kTileRows) +
        ", N = " + std::to_string(num_strided_) + ";");
    add("  const int lane = threadIdx.x, warp = threadIdx.y;");
    for (const PointwiseOperand& o : operands_) {
      if (o.kind == Kind::kTransposed && is_read(o)) {
        add("  __shared__ " + std::string(type_name(o.type)) + " t_" + o.name + "[S][S + 1];");
      }
    }
    add("  i64 at[N + 2];");
    add("  offsets(p.loop, blockIdx.x, at);");
    add("  const i64 width = p.size[0] - at[N], height = p.size[1] - at[N + 1];");
    for (const PointwiseOperand& o : operands_) {
      if (!is_read(o) || !o.in_memory()) continue;
      add("  " + std::string(type_name(o.type)) + " a_" + o.name + "[S / W];");
      add("#pragma unroll");
      add("  for (int u = 0; u < S / W; ++u) {");
      add("    const int row = warp + u * W;");
      if (o.kind == Kind::kTransposed) {
        add("    if (row < width && lane < height) a_" + o.name +
            "[u] = " + place(o, "row", "lane") + ";");
      } else {
        add("    if (lane < width && row < height) a_" + o.name +
            "[u] = " + place(o, "lane", "row") + ";");
      }
      add("  }");
    }
    for (const PointwiseOperand& o : operands_) {
      if (o.kind != Kind::kTransposed || !is_read(o)) continue;
      add("#pragma unroll");
      add("  for (int u = 0; u < S / W; ++u) t_" + o.name + "[warp + u * W][lane] = a_" + o.name +
          "[u];");
    }
    add("  __syncthreads();");
    add("#pragma unroll");
    add("  for (int u = 0; u < S / W; ++u) {");
    add("    const int row = warp + u * W;");
    add("    if (lane >= width || row >= height) break;");
    for (const PointwiseOperand& o : operands_) {
      if (o.output && o.kind != Kind::kAbsent) add("    " + o.value + " y_" + o.name + ";");
    }
    add("    " + call(
                     [](const PointwiseOperand& o) {
                       return o.kind == Kind::kTransposed ? "t_" + o.name + "[lane][row]"
                                                          : "a_" + o.name + "[u]";
                     },
                     [](const PointwiseOperand& o) { return "y_" + o.name; }));
    for (const PointwiseOperand& o : operands_) {
      if (!o.output || o.kind == Kind::kAbsent) continue;
      add("    " + place(o, "lane", "row") + " = convert<" + type_name(o.type) + ">(y_" + o.name +
          ");");
    }
    add("  }");
    add("}");
  }

  const Program& program_;
  const Code compute_;
  const bool line_;
  const bool wide_;
  const bool tiled_;
  const bool any_;
  const int run_;
  const int dims_;
  const int unroll_;
  std::vector<PointwiseOperand> operands_;
  std::vector<bool> needed_;
  int num_strided_ = 0;
  std::string text_;
};

}  // namespace

// Enough loads in flight to saturate memory, few enough registers for full occupancy.
int runs_of(const Program& program, const Key& key) {
  const bool many = program.inputs.size() + program.outputs.size() > 5;
  return key.get(kRun) == 1 ? (many ? 2 : 4) : many ? 1 : 2;
}

std::string pointwise_prelude(const Key& key) {
  std::string text(kPrelude);
  if (is_complex(key.get(kCompute))) text += kComplex;
  return text;
}

std::string pointwise_text(const Program& program, const Key& key) {
  return Text(program, key).text();
}

}  // namespace mytorch::cuda
