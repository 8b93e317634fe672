#include "backends/cuda/fused/text.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "backends/cuda/programs/compiler.h"
#include "backends/cuda/reduction/text.h"

namespace mytorch::cuda {
namespace {

using namespace fused_key;

constexpr int kLoadsAhead = 4;  // runs of 16 bytes, of all operands of a row

bool in_float32(Code code) { return code >= kFloat16 && code <= kFloat32; }
bool is_half(Code code) { return code == kFloat16 || code == kBfloat16; }

std::string text_of(int64_t number) { return std::to_string(number); }

class Text {
 public:
  Text(const FusedSource& source, const Key& key)
      : source_(source),
        run_(key.get(kRun)),
        form_(key.get(kForm)),
        dims_(key.get(kDims)),
        threads_(32 << key.get(kThreads)),
        parts_(key.get(kParts)) {
    const auto add = [&](int32_t value, bool output, int number) {
      const uint8_t bits = key.get(kOperands + number);
      FusedOperand operand{static_cast<Kind>(bits >> 4), static_cast<Code>(bits & 15), value,
                           output, (output ? "o" : "i") + std::to_string(operands_.size())};
      operand.index = operand.kind == Kind::kNumber ? -1 : num_strided_++;
      operands_.push_back(operand);
    };
    int number = 0;
    for (int i = 0; i < source.num_inputs; ++i) add(i, false, number++);
    for (const int32_t value : source.outputs) add(value, true, number++);
    if (!source.rows) return;
    stays_ = inputs_that_stay(source);
    if (parts_ == 0) stays_.assign(stays_.size(), false);
    for (int p = 0; p <= source.phases; ++p) phases_.push_back(source.phase(p, parts_ > 0));
  }

  std::string text() {
    text_ = "\n// " + source_.name + "\n";
    parameters();
    if (source_.rows) {
      rows();
    } else {
      body();
      form_ == kLine ? line() : strided();
    }
    return std::string(source_.exact ? "" : "#define MYTORCH_QUICK_DIVISION\n") +
           std::string(kPrelude) + (source_.rows ? std::string(kFolds) : "") + text_;
  }

 private:
  struct FusedOperand {
    Kind kind;
    Code type;
    int32_t value;
    bool output;
    std::string name;
    int index = -1;  // in the loop

    // Whether each element of the loop has one of its own.
    bool elements() const { return kind == Kind::kElements; }
  };

  void add(const std::string& line) { text_ += line + "\n"; }
  const FusedSource::Value& value(int32_t at) const {
    return source_.values[static_cast<size_t>(at)];
  }
  static std::string w(int32_t value) { return "w" + std::to_string(value); }
  // Returns the C++ type of a value.
  std::string type(int32_t at) const {
    const Code code = value(at).type;
    return code == kBool ? "bool" : value_name(MT_TYPE_COMPUTE, code);
  }
  // Returns the value of an element in memory.
  static std::string loaded(Code code, const std::string& element) {
    return code == kBool ? "convert<bool>(" + element + ")"
                         : std::string("input<") + type_name(code) + ">(" + element + ")";
  }

  void parameters() {
    add("struct P {");
    for (const FusedOperand& o : operands_) {
      if (o.kind == Kind::kNumber) {
        add("  Scalar<" + type(o.value) + "> " + o.name + ";");
      } else {
        add(std::string(o.output ? "  " : "  const ") + type_name(o.type) + "* " + o.name + ";");
      }
    }
    for (size_t i = 0; i < source_.numbers.size(); ++i) {
      add(std::string("  Scalar<") + source_.numbers[i].type + "> number" + std::to_string(i) +
          ";");
    }
    add("  i64 n;");
    if (source_.rows) add("  i64 columns;");
    for (const FusedOperand& o : operands_) {
      if (is_table(o)) add("  i64 inner_" + o.name + ", along_" + o.name + ";");
    }
    for (size_t i = 0; i < source_.calls.size(); ++i) {
      if (source_.calls[i].is("bound")) add("  Faults " + faults(source_.calls[i]) + ";");
    }
    if (form_ != kLine) {
      const bool wide = form_ == kWide || form_ == kWideRows;
      add("  Strided<" + std::to_string(num_strided_) + ", " + std::to_string(dims_) + ", " +
          (wide ? "true" : "false") + "> loop;");
    }
    add("};");
  }

  // ---- calls

  // Returns a number as one of the compute type, or of a bool or an index.
  static std::string number(const FusedSource::Number& of, int32_t type, Code compute) {
    if (of.parameter >= 0) return "p.number" + std::to_string(of.parameter) + ".value";
    const uint64_t bits = of.bits;
    char text[64];
    if (type == MT_TYPE_BOOL) return bits != 0 ? "true" : "false";
    if (type == MT_TYPE_COMPUTE && compute == kFloat64) {
      std::snprintf(text, sizeof(text), "__longlong_as_double(0x%llxLL)",
                    static_cast<unsigned long long>(bits));
      return text;
    }
    if (type == MT_TYPE_COMPUTE && in_float32(compute)) {
      std::snprintf(text, sizeof(text), "__uint_as_float(0x%xu)", static_cast<unsigned>(bits));
      return text;
    }
    const auto whole = static_cast<int64_t>(bits);
    if (whole == INT64_MIN) return "(-0x7fffffffffffffffLL - 1)";
    return text_of(whole) + "LL";
  }

  // Returns the value of an input of a call.
  std::string taken(const FusedSource::Call& call, size_t input) const {
    const int32_t at = call.inputs[input], type = call.program.inputs[input].type;
    const Code compute = call.compute;
    const FusedSource::Value& from = value(at);
    if (from.kind == MT_FUSED_NUMBER) return number(call.input_numbers[input], type, compute);
    if (from.kind == MT_FUSED_POSITION) {
      const std::string here = from.row ? "i64(0)" : "here";
      return compute == kInt64 || type == MT_TYPE_INDEX
                 ? here
                 : std::string("input<") + type_name(compute) + ">(" + here + ")";
    }
    if (type == MT_TYPE_BOOL) return from.type == kBool ? w(at) : "convert<bool>(" + w(at) + ")";
    if (from.type == compute && compute != kBool) return w(at);
    return std::string("input<") + type_name(compute) + ">(" + w(at) + ")";
  }

  // Returns declarations of the inputs and numbers of a call among the wanted nodes.
  std::string arguments(const FusedSource::Call& call, const std::vector<bool>& wanted) const {
    std::string text;
    const Program& program = call.program;
    const auto declare = [&](const Program::Argument& argument, const std::string& right) {
      if (!wanted[static_cast<size_t>(argument.node)]) return;
      text += std::string("  const ") + value_name(argument.type, call.compute) + " v" +
              std::to_string(argument.node) + " = " + right + ";\n";
    };
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      if (value(call.inputs[i]).is_table()) continue;
      declare(program.inputs[i], taken(call, i));
    }
    for (size_t i = 0; i < program.scalars.size(); ++i) {
      declare(program.scalars[i], number(call.scalars[i], program.scalars[i].type, call.compute));
    }
    return text;
  }

  // Returns the statement that stores a node in a value.
  std::string result(int32_t at, int32_t node_type, Code compute, const std::string& node) const {
    const FusedSource::Value& to = value(at);
    std::string right = node;
    if (to.type == kBool) {
      right = node_type == MT_TYPE_BOOL ? node : "convert<bool>(" + node + ")";
    } else if (node_type != MT_TYPE_COMPUTE) {
      right = std::string("input<") + type_name(to.type) + ">(" + node + ")";
    } else if (to.type != compute || (source_.exact && is_half(to.type))) {
      const bool close = !source_.exact && in_float32(to.type) && in_float32(compute);
      if (!close) right = std::string("input<") + type_name(to.type) + ">(" + node + ")";
    }
    return "  " + w(at) + " = " + right + ";\n";
  }

  bool is_table(const FusedOperand& o) const { return !o.output && value(o.value).is_table(); }
  // Returns the name of the Faults of a call.
  std::string faults(const FusedSource::Call& call) const {
    return "faults" + std::to_string(&call - source_.calls.data());
  }
  // Returns the declaration of the result of the check of an index, or of a load.
  std::string selection(const FusedSource::Call& call) const {
    const Program& program = call.program;
    const auto at = static_cast<size_t>(program.outputs[0].node);
    const mt_node& node = program.nodes[at];
    const auto v = [](size_t k) { return "v" + std::to_string(k); };
    const auto operand = [&](int k) { return v(static_cast<size_t>(node.a[k])); };
    std::string right;
    if (call.is("bound")) {
      right = "bounded(p." + faults(call) + ", " + operand(0) + ", " + operand(1) + ", " +
              operand(2) + ")";
    } else {
      const FusedOperand& o = input_of(call.inputs[0]);
      const bool row = value(call.results[0]).row;
      right = loaded(o.type, "r_" + o.name + "[" + operand(1) + " * p.along_" + o.name +
                                 (row ? "" : " + here * p.inner_" + o.name) + "]");
    }
    return std::string("  const ") + value_name(node.type, call.compute) + " " + v(at) + " = " +
           right + ";\n";
  }

  std::string declarations(const FusedSource::Call& call) const {
    std::string text;
    for (const int32_t at : call.results) {
      if (at >= 0) text += type(at) + " " + w(at) + ";\n";
    }
    return text;
  }

  // Returns the statements of a pointwise call.
  std::string statements(const FusedSource::Call& call) const {
    const Program& program = call.program;
    std::vector<int32_t> roots;
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i] >= 0) roots.push_back(program.outputs[i].node);
    }
    const std::vector<bool> wanted = program.needed(roots);
    std::string text = declarations(call) + "{  // " + program.name + "\n";
    text += arguments(call, wanted) + program.text(wanted, call.compute);
    if (call.is("bound") || call.is("load")) text += selection(call);
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i] < 0) continue;
      text += result(call.results[i], program.outputs[i].type, call.compute,
                     "v" + std::to_string(program.outputs[i].node));
    }
    return text + "}\n";
  }

  // ---- pointwise programs

  // Emits the computation of one element: inputs by value, results by reference.
  void body() {
    std::string arguments = "const P& p";
    std::string values;
    for (const FusedOperand& o : operands_) {
      if (o.output) {
        arguments += ", " + type(o.value) + "& " + o.name;
      } else if (o.kind == Kind::kNumber) {
        values += "const " + type(o.value) + " " + w(o.value) + " = p." + o.name + ".value;\n";
      } else {
        arguments += ", const " + type(o.value) + " " + w(o.value);
      }
    }
    add("FN void body(" + arguments + ") {");
    text_ += values;
    for (const FusedSource::Call& call : source_.calls) text_ += statements(call);
    for (const FusedOperand& o : operands_) {
      if (o.output) add("  " + o.name + " = " + w(o.value) + ";");
    }
    add("}");
    begin(kFusedThreads);
    for (const FusedOperand& o : operands_) {
      if (!o.output && o.kind == Kind::kSingle) {
        add("  const " + type(o.value) + " x_" + o.name + " = " + loaded(o.type, "*p." + o.name) +
            ";");
      }
    }
  }

  void begin(int threads) {
    add("extern \"C\" __global__ void __launch_bounds__(" + std::to_string(threads) +
        ") kernel(const __grid_constant__ P p) {");
    add("  begin();");
    add("  constexpr int T = " + std::to_string(source_.rows ? threads_ : threads) +
        ", V = " + std::to_string(run_) + ";");
  }

  // Returns a call of body() with inputs named by element(operand), and results by result(operand).
  template <class Element, class Result>
  std::string call(Element&& element, Result&& result) const {
    std::string text = "body(p";
    for (const FusedOperand& o : operands_) {
      if (o.output) {
        text += ", " + result(o);
      } else if (o.kind == Kind::kSingle) {
        text += ", x_" + o.name;
      } else if (o.kind != Kind::kNumber) {
        text += ", " + loaded(o.type, element(o));
      }
    }
    return text + ");";
  }

  // Emits the computation of a run, with inputs in a_NAME and results stored at place(operand).
  template <class Place>
  void compute_run(const std::string& in, const std::string& part, Place&& place) {
    for (const FusedOperand& o : operands_) {
      if (o.output) add(in + type(o.value) + " y_" + o.name + "[V];");
    }
    add("#pragma unroll");
    add(in + "for (int k = 0; k < V; ++k) {");
    add(in + "  " +
        call(
            [&](const FusedOperand& o) {
              return "a_" + o.name + part + (o.kind == Kind::kRepeated ? ".at[0]" : ".at[k]");
            },
            [](const FusedOperand& o) { return "y_" + o.name + "[k]"; }));
    add(in + "}");
    for (const FusedOperand& o : operands_) {
      if (o.output) add(in + "store<V>(p." + o.name + " + " + place(o) + ", y_" + o.name + ");");
    }
  }
  // Returns "Pack<f32, V> a_i0".
  std::string pack(const FusedOperand& o) const {
    return std::string("Pack<") + type_name(o.type) +
           (o.kind == Kind::kRepeated ? ", 1> a_" : ", V> a_") + o.name;
  }
  bool is_loaded(const FusedOperand& o) const {
    return !o.output && o.kind != Kind::kNumber && o.kind != Kind::kSingle;
  }

  void line() {
    add("  constexpr int U = " + std::to_string(kFusedUnroll) + ";");
    add("  const i64 tile = static_cast<i64>(blockIdx.x) * (T * V * U);");
    add("  if (tile + T * V * U > p.n) {");
    add("#pragma unroll 1");
    add("    for (i64 i = tile + threadIdx.x; i < p.n; i += T) {");
    for (const FusedOperand& o : operands_) {
      if (o.output) add("      " + type(o.value) + " y_" + o.name + ";");
    }
    add("      " + call([](const FusedOperand& o) { return "p." + o.name + "[i]"; },
                        [](const FusedOperand& o) { return "y_" + o.name; }));
    for (const FusedOperand& o : operands_) {
      if (o.output) {
        add("      p." + o.name + "[i] = convert<" + type_name(o.type) + ">(y_" + o.name + ");");
      }
    }
    add("    }");
    add("    return;");
    add("  }");
    add("  const i64 at = tile + threadIdx.x * V;");
    for (const FusedOperand& o : operands_) {
      if (is_loaded(o)) add("  " + pack(o) + "[U];");
    }
    add("#pragma unroll");
    add("  for (int u = 0; u < U; ++u) {");
    for (const FusedOperand& o : operands_) {
      if (is_loaded(o)) {
        add("    a_" + o.name + "[u] = load<V>(p." + o.name + " + at + u * (T * V));");
      }
    }
    add("  }");
    add("#pragma unroll");
    add("  for (int u = 0; u < U; ++u) {");
    compute_run("    ", "[u]", [](const FusedOperand&) { return std::string("at + u * (T * V)"); });
    add("  }");
    add("}");
  }

  void strided() {
    add("  const i64 i = static_cast<i64>(blockIdx.x) * T + threadIdx.x;");
    add("  if (i >= p.n) return;");
    add("  i64 at[" + std::to_string(num_strided_) + "];");
    add("  offsets(p.loop, i, at);");
    const auto place = [](const FusedOperand& o) { return "at[" + std::to_string(o.index) + "]"; };
    for (const FusedOperand& o : operands_) {
      if (!is_loaded(o)) continue;
      add("  const " + pack(o) + " = load<" + (o.kind == Kind::kRepeated ? "1" : "V") + ">(p." +
          o.name + " + " + place(o) + ");");
    }
    compute_run("  ", "", place);
    add("}");
  }

  // ---- rows

  const FusedOperand& input_of(int32_t value) const {
    return *std::find_if(operands_.begin(), operands_.end(),
                         [&](const FusedOperand& o) { return !o.output && o.value == value; });
  }

  // Emits a loop over the thread's runs of a row, with the calls of a phase for each element, then
  // `last`. Where a row does not stay in registers, several runs are loaded before the first of
  // them is used.
  void element_loop(int number, const std::string& before, const std::string& last,
                    const std::string& after) {
    const bool keeps = parts_ > 0;
    const FusedSource::Phase& phase = phases_[static_cast<size_t>(number)];
    const auto runs = [&](const char* count, const char* at) {
      add("#pragma unroll");
      add("  for (int u = 0; u < " + std::string(count) + "; ++u) {");
      add("    const i64 at = " + std::string(at) + ";");
      add("    if (at >= p.columns) break;");
    };
    const auto is_read = [&](int32_t v) { return !stays_[static_cast<size_t>(v)]; };
    if (keeps) {
      runs("U", "(u * T + lane) * V");
      for (const int32_t v : phase.inputs) {
        const FusedOperand& o = input_of(v);
        if (is_read(v)) add("    const " + pack(o) + " = load<V>(r_" + o.name + " + at);");
      }
    } else {
      const int ahead =
          std::max(1, kLoadsAhead / std::max(1, static_cast<int>(phase.inputs.size())));
      const std::string count = text_of(ahead);
      add("#pragma unroll 1");
      add("  for (i64 first = lane * V; first < p.columns; first += " + count + " * T * V) {");
      for (const int32_t v : phase.inputs) add("  " + pack(input_of(v)) + "[" + count + "];");
      runs(count.c_str(), "first + u * T * V");
      for (const int32_t v : phase.inputs) {
        const std::string name = input_of(v).name;
        add("    a_" + name + "[u] = load<V>(r_" + name + " + at);");
      }
      add("  }");
      runs(count.c_str(), "first + u * T * V");
    }
    text_ += before;
    add("#pragma unroll");
    add("    for (int k = 0; k < V; ++k) {");
    if (source_.places) add("const i64 here = at + k;");
    for (const int32_t v : phase.inputs) {
      const FusedOperand& o = input_of(v);
      const std::string part = keeps && is_read(v) ? "" : "[u]";
      add("const " + type(v) + " " + w(v) + " = " +
          loaded(o.type, "a_" + o.name + part + ".at[k]") + ";");
    }
    for (const int32_t v : phase.kept) {
      add("const " + type(v) + " " + w(v) + " = k_" + w(v) + "[u][k];");
    }
    for (const int at : phase.calls) {
      const FusedSource::Call& call = source_.calls[static_cast<size_t>(at)];
      text_ += statements(call);
      for (const int32_t v : call.results) {
        if (keeps && v >= 0 && value(v).kept == number) {
          add("k_" + w(v) + "[u][k] = " + w(v) + ";");
        }
      }
    }
    text_ += last;
    add("    }");
    text_ += after;
    add(keeps ? "  }" : "  }\n  }");
  }

  // Emits the calls of rows that depend on `phase` reductions.
  void row_calls(int phase) {
    for (const FusedSource::Call& call : source_.calls) {
      if (call.reduces()) continue;
      const auto made = std::find_if(call.results.begin(), call.results.end(),
                                     [](int32_t at) { return at >= 0; });
      if (made == call.results.end() || !value(*made).row || value(*made).phase != phase) continue;
      text_ += statements(call);
    }
  }

  // Emits the reductions whose inputs depend on `phase` others.
  void reductions(int phase) {
    std::vector<int> found;
    for (size_t i = 0; i < source_.calls.size(); ++i) {
      const FusedSource::Call& call = source_.calls[i];
      if (!call.reduces()) continue;
      int needs = 0;
      for (const int32_t at : call.inputs) needs = std::max(needs, value(at).phase);
      if (needs != phase) continue;
      found.push_back(static_cast<int>(i));
    }
    if (found.empty()) return;
    std::string before, last, after;
    for (const int i : found) {
      const FusedSource::Call& call = source_.calls[static_cast<size_t>(i)];
      const std::string s = "s" + std::to_string(i);
      add("  " + state_name(call.program, call.compute) + " " + s + ";");
      add("  " + s + ".clear();");
      const int32_t step[] = {call.program.step};
      const std::vector<bool> wanted = call.program.needed(step);
      last += "{  // " + call.program.name + "\n" + arguments(call, wanted) +
              call.program.text(wanted, call.compute) + "  x_" + s + "[k] = v" +
              std::to_string(call.program.step) + ";\n}\n";
      before += "decltype(" + s + ".c0) x_" + s + "[V];\n";
      after += "push_run(" + s + ", x_" + s + ");\n";
    }
    element_loop(phase, before, last, after);
    for (const int i : found) {
      const FusedSource::Call& call = source_.calls[static_cast<size_t>(i)];
      const Program& program = call.program;
      const std::string s = "s" + std::to_string(i);
      add("  join_row<T>(" + s + ");");
      std::vector<int32_t> roots;
      for (size_t k = 0; k < call.results.size(); ++k) {
        if (call.results[k] >= 0) roots.push_back(program.outputs[k].node);
      }
      const std::vector<bool> wanted = program.needed(roots);
      text_ += declarations(call) + "{\n";
      for (size_t k = 0; k < program.nodes.size(); ++k) {
        const mt_node& node = program.nodes[k];
        const std::string_view op = node.op;
        if (!wanted[k] || (op != "state" && op != "count")) continue;
        const std::string right =
            op == "count" ? "p.columns" : component_text(program, s, node.component);
        const std::string v = value_name(node.type, call.compute);
        add("  const " + v + " v" + std::to_string(k) + " = static_cast<" + v + ">(" + right +
            ");");
      }
      text_ += arguments(call, wanted) + program.text(wanted, call.compute);
      for (size_t k = 0; k < call.results.size(); ++k) {
        if (call.results[k] < 0) continue;
        text_ += result(call.results[k], program.outputs[k].type, call.compute,
                        "v" + std::to_string(program.outputs[k].node));
      }
      add("}");
    }
  }

  void rows() {
    add(R"(
// Returns an index that is in range; else 0, and records the fault (backends/cuda/runtime/faults.h).
FN i64 bounded(const Faults& faults, i64 index, i64 size, i64 dim) {
  if (static_cast<u64>(index) < static_cast<u64>(size)) return index;
  if (atomicCAS(faults.fault, 0u, static_cast<u32>(faults.site)) == 0u) {
    faults.fault[1] = static_cast<u32>(dim);
    i64* const numbers = reinterpret_cast<i64*>(faults.fault) + 1;
    numbers[0] = index;
    numbers[1] = size;
  }
  return 0;
}

// Combines the states of a row's T threads, in their order; all of them get the result, which does
// not depend on the order in which they arrive.
template <class S>
FN S from_across(const S& s, int mask) {
  u32 words[sizeof(S) / 4];
  memcpy(words, &s, sizeof(S));
#pragma unroll
  for (int k = 0; k < static_cast<int>(sizeof(S) / 4); ++k) {
    words[k] = __shfl_xor_sync(0xffffffffu, words[k], mask);
  }
  S other;
  memcpy(&other, words, sizeof(S));
  return other;
}
template <int T, class S>
FN void join_row(S& s) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    S other = from_across(s, d);
    if ((threadIdx.x & d) != 0) {
      other.merge(s);
      s = other;
    } else {
      s.merge(other);
    }
  }
  if constexpr (T > 32) {
    __shared__ S parts[T / 32];
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
    __syncthreads();
    s = parts[0];
#pragma unroll
    for (int k = 1; k < T / 32; ++k) s.merge(parts[k]);
  }
}
)");
    begin(std::max(threads_, kFusedThreads));
    if (parts_ > 0) add("  constexpr int U = " + std::to_string(parts_) + ";");
    add("  const int lane = threadIdx.x;");
    add("  const i64 row = static_cast<i64>(blockIdx.x) * blockDim.y + threadIdx.y;");
    add("  if (row >= p.n) return;");
    add("  i64 begin_of[" + std::to_string(num_strided_) + "];");
    add("  offsets(p.loop, row, begin_of);");
    for (const FusedOperand& o : operands_) {
      if (o.kind == Kind::kNumber) {
        add("  const " + type(o.value) + " " + w(o.value) + " = p." + o.name + ".value;");
        continue;
      }
      add(std::string(o.output ? "  " : "  const ") + type_name(o.type) + "* const r_" + o.name +
          " = p." + o.name + " + begin_of[" + std::to_string(o.index) + "];");
      if (!o.output && !o.elements()) {
        add("  const " + type(o.value) + " " + w(o.value) + " = " + loaded(o.type, "*r_" + o.name) +
            ";");
      }
    }
    if (parts_ > 0) {
      for (size_t v = 0; v < stays_.size(); ++v) {
        if (stays_[v]) add("  " + pack(input_of(static_cast<int32_t>(v))) + "[U];");
      }
      for (size_t v = 0; v < source_.values.size(); ++v) {
        if (source_.values[v].kept < 0) continue;
        const auto at = static_cast<int32_t>(v);
        add("  " + type(at) + " k_" + w(at) + "[U][V];");
      }
      add("#pragma unroll");
      add("  for (int u = 0; u < U; ++u) {");
      add("    const i64 at = (u * T + lane) * V;");
      add("    if (at >= p.columns) break;");
      for (size_t v = 0; v < stays_.size(); ++v) {
        if (!stays_[v]) continue;
        const FusedOperand& o = input_of(static_cast<int32_t>(v));
        add("    a_" + o.name + "[u] = load<V>(r_" + o.name + " + at);");
      }
      add("  }");
    }
    row_calls(0);
    for (int phase = 0; phase < source_.phases; ++phase) {
      reductions(phase);
      row_calls(phase + 1);
    }
    std::string before, last, after;
    for (const FusedOperand& o : operands_) {
      if (!o.output || !o.elements()) continue;
      before += type(o.value) + " y_" + o.name + "[V];\n";
      last += "y_" + o.name + "[k] = " + w(o.value) + ";\n";
      after += "store<V>(r_" + o.name + " + at, y_" + o.name + ");\n";
    }
    if (!last.empty()) element_loop(source_.phases, before, last, after);
    // An output of rows may be an operand, which all threads of the row must have read by now.
    // After a reduction they have.
    if (source_.phases == 0) add("  if constexpr (T > 32) __syncthreads(); else __syncwarp();");
    add("  if (lane == 0) {");
    for (const FusedOperand& o : operands_) {
      if (o.output && !o.elements()) {
        add("    *r_" + o.name + " = convert<" + type_name(o.type) + ">(" + w(o.value) + ");");
      }
    }
    add("  }");
    add("}");
  }

  const FusedSource& source_;
  const int run_;
  const uint8_t form_;
  const int dims_;
  const int threads_;
  const int parts_;
  std::vector<FusedOperand> operands_;
  int num_strided_ = 0;
  std::vector<FusedSource::Phase> phases_;
  std::vector<bool> stays_;  // of the inputs: whether their elements stay in registers
  std::string text_;
};

}  // namespace

std::string fused_text(const FusedSource& source, const Key& key) {
  return Text(source, key).text();
}

}  // namespace mytorch::cuda
