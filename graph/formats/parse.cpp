#include "graph/formats/parse.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/types/checked.h"
#include "core/types/errors.h"
#include "dispatcher/table/defaults.h"
#include "graph/formats/text_reader.h"
#include "mytorch/generator.h"

namespace mytorch::graph {
namespace {

constexpr size_t kMaxDims = 64;
constexpr size_t kMaxSymbols = 16, kMaxName = 64;
constexpr int64_t kMaxIndex = 1 << 20;  // of arguments and tensors from outside

class Parser : private TextReader {
 public:
  Parser(std::string_view text, const Schemas* schemas, const std::vector<Symbol>& sizes)
      : TextReader(text), schemas_(schemas), sizes_(sizes) {}

  Graph run();
  std::vector<Symbol> take_symbols() { return std::move(found_symbols_); }

 private:
  // The number of a value, after "%".
  ValueId number() {
    const size_t begin = at_;
    if (at_ < text_.size() && !absl::ascii_isdigit(static_cast<unsigned char>(text_[at_]))) {
      refuse(here(), " stands where the number of a value belongs, as in %3");
    }
    size_t end = at_;
    while (end < text_.size() && absl::ascii_isdigit(static_cast<unsigned char>(text_[end]))) ++end;
    int64_t value = 0;
    const auto found = std::from_chars(text_.data() + at_, text_.data() + end, value);
    // The table of values has a place for each number up to the largest.
    const auto limit = static_cast<int64_t>(1024 + 16 * declared_count_);
    if (found.ec != std::errc() || value > limit) {
      refuse_at(begin, "the number of a value is too large after ", declared_count_,
                " values: number them from %0 on");
    }
    at_ = end;
    return static_cast<ValueId>(value);
  }
  bool is_known(ValueId id) const {
    return id < static_cast<ValueId>(graph_.values.size()) && graph_.values[id].buffer >= 0;
  }
  // Reads the name of a value. Results of a line may share memory with each other, so they are
  // known to the types of the line, but not to its operands.
  ValueId reference(bool in_type) {
    expect('%', "before the number of a value");
    const size_t begin = at_ - 1;
    const ValueId id = number();
    if (!is_known(id) || (!in_type && !usable_[id])) {
      refuse_at(begin, "%", id, " is not defined here: write it as a result of a line above");
    }
    return id;
  }
  ValueId operand() { return reference(false); }
  // Lets the lines below use the values that this one has defined.
  void end_line() {
    for (const ValueId id : defined_) usable_[id] = true;
    defined_.clear();
  }
  int32_t add_buffer(const Device& on) {
    graph_.buffers.push_back({Origin::kInside, -1, {}, on, 0});
    is_memory_.push_back(false);
    is_empty_.push_back(false);
    return static_cast<int32_t>(graph_.buffers.size() - 1);
  }

  struct Declared {
    size_t at = 0;
    ValueId id = kNoValue;
    bool fresh = false;  // whether the value has memory of its own, which the line defines
  };
  // Reads and defines a value with its type, as in "%3: float32[2, 3] cuda:0 in %0 + 4".
  Declared declaration() {
    Declared found;
    expect('%', "before the number of a value");
    found.at = at_ - 1;
    found.id = number();
    expect(':', "between a value and its type");
    ValueInfo info;
    info.dtype = dtype();
    geometry(found.at, &info);
    bool view = take_word("in");
    bool on_device = false;
    Device on;
    if (!view && next_is_word()) {
      on = device();
      on_device = true;
      view = take_word("in");
    }
    if (view) info.buffer = graph_.values[reference(true)].buffer;
    if (take('+')) info.offset = count("the offset of a view");
    check_span(found.at, info);
    if (is_known(found.id)) {
      const ValueInfo& known = graph_.values[found.id];
      const bool same = known.dtype == info.dtype && known.sizes == info.sizes &&
                        known.strides == info.strides && known.offset == info.offset &&
                        (!view || info.buffer == known.buffer);
      if (!same) {
        refuse_at(found.at, "%", found.id,
                  " is defined already, with another type: give the new value another number");
      }
      info.buffer = known.buffer;
    }
    if (info.buffer >= 0) {
      const Device& of = graph_.buffers[info.buffer].device;
      if (on != of) {
        refuse_at(found.at, "the memory of %", found.id, " is on ", of.str(), ": write ", of.str(),
                  on_device ? " in place of " : " after its type, not ", on.str());
      }
      if (is_known(found.id)) return found;
    } else {
      info.buffer = add_buffer(on);
      first_types_.push_back(info.dtype);
      found.fresh = true;
    }
    if (static_cast<ValueId>(graph_.values.size()) <= found.id) {
      graph_.values.resize(static_cast<size_t>(found.id) + 1);
      usable_.resize(graph_.values.size());
    }
    graph_.values[found.id] = std::move(info);
    defined_.push_back(found.id);
    ++declared_count_;
    return found;
  }
  // Kernels rely on the bytes of bools to be 0 or 1.
  void check_bools(const Declared& found) const {
    const ValueInfo& info = graph_.values[found.id];
    const ScalarType first = first_types_[info.buffer];
    if (first != info.dtype && (first == kBool || info.dtype == kBool)) {
      refuse_at(found.at, "memory of type ", dtype_name(first), " has no view of type ",
                dtype_name(info.dtype), ": convert it with an operator");
    }
  }
  // Reads "[64, 784; 1, 64]".
  void geometry(size_t at, ValueInfo* info) {
    expect('[', "after the type of a value");
    const auto dims = [&](Dims* to, const char* what) {
      if (next_is(']') || next_is(';')) return;
      do {
        if (to->size() == kMaxDims) refuse("a tensor has at most ", kMaxDims, " dimensions");
        const bool is_size = to == &info->sizes && in_arguments_;
        if (!is_size || !define_symbol(to)) to->push_back(count(what));
      } while (take(','));
    };
    dims(&info->sizes, "a size");
    const bool strided = take(';');
    if (strided) dims(&info->strides, "a stride");
    if (strided && info->strides.size() != info->sizes.size()) {
      refuse("the value has ", info->sizes.size(), " sizes and ", info->strides.size(),
             " strides: write one stride for each size");
    }
    expect(']', "after the shape of a value");
    if (strided) return;
    info->strides.resize(info->sizes.size());
    check_span(at, *info);  // with strides of 0: the number of elements
    contiguous_strides(info->sizes.data(), static_cast<int>(info->sizes.size()),
                       info->strides.data());
  }
  // Reads a size such as "n = 64", if one stands here: it defines a symbol.
  bool define_symbol(Dims* sizes) {
    skip(true);
    const size_t begin = at_;
    const std::string name(word());
    if (name.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(name[0])) || !take('=')) {
      at_ = begin;
      return false;
    }
    if (name.size() > kMaxName || symbols_.size() == kMaxSymbols) {
      refuse_at(begin, "a graph has at most ", kMaxSymbols, " symbols, of ", kMaxName, " letters");
    }
    if (symbols_.contains(name)) refuse_at(begin, shown(name), " is defined twice");
    int64_t size = count("a size");
    for (const Symbol& given : sizes_) {
      if (given.name == name) size = given.size;
    }
    symbols_[name] = size;
    found_symbols_.push_back({name, graph_.arguments.size(), sizes->size(), size});
    sizes->push_back(size);
    return true;
  }
  bool next_is_word() {
    skip(depth_ > 0);
    return at_ < text_.size() && is_word(text_[at_]);
  }
  void check_span(size_t at, const ValueInfo& info) const {
    try {
      span_of(info);
    } catch (const Error& error) {
      refuse_at(at, error.what());
    }
  }

  // ---- operators ----

  void arguments();
  void statement();
  void results_or_header();
  void source(std::string_view kind, size_t begin, int32_t buffer);
  void call(std::vector<Arg> results);
  void find_operator(std::string_view name, size_t at, Node* node) const;
  Arg argument(const ArgInfo& info, const OpInfo& op);
  std::vector<bool> written_with(const OpInfo& op, size_t at, bool outputs) const;
  void check_memory(const Node& node, const std::vector<size_t>& places);
  Leaf leaf();
  void grad_result();
  void check_arguments() const;
  void finish();

  const Schemas* schemas_;
  const std::vector<Symbol>& sizes_;
  std::vector<Symbol> found_symbols_;
  bool in_arguments_ = false;
  Graph graph_;
  size_t declared_count_ = 0;
  std::set<int32_t> outside_;     // tensors that are defined
  std::vector<bool> usable_;      // by value
  std::vector<ValueId> defined_;  // by this line
  // By buffer: whether it is memory(), and whether nothing has written that yet.
  std::vector<bool> is_memory_;
  std::vector<bool> is_empty_;
  std::vector<ScalarType> first_types_;  // by buffer
  bool grad_mode_ = true;
  bool done_ = false;
};

Graph Parser::run() {
  skip(true);
  if (!take_word("graph")) refuse(here(), " stands where 'graph(' belongs");
  arguments();
  skip(true);
  expect('{', "after the arguments of the graph");
  while (!done_) {
    skip(true);
    statement();
    end_line();
    skip(false);
    if (!done_ && at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '}') {
      refuse(here(), " follows a complete line: begin a new one");
    }
  }
  skip(true);
  expect('}', "after the line 'return'");
  skip(true);
  if (at_ != text_.size()) refuse(here(), " follows the end of the graph");
  finish();
  return std::move(graph_);
}

void Parser::arguments() {
  expect('(', "after 'graph'");
  in_arguments_ = true;
  list(')', [this] {
    const auto index = static_cast<int64_t>(graph_.arguments.size());
    if (index == kMaxIndex) refuse("a graph has at most ", kMaxIndex, " arguments");
    const Declared found = declaration();
    if (found.fresh) {
      Buffer& buffer = graph_.buffers[graph_.values[found.id].buffer];
      buffer.origin = Origin::kArgument;
      buffer.index = static_cast<int32_t>(index);
    }
    check_bools(found);
    graph_.arguments.push_back(found.id);
  });
  in_arguments_ = false;
  end_line();
}

void Parser::statement() {
  if (at_ == text_.size()) refuse("the text ends before the line 'return' and '}'");
  const char c = text_[at_];
  if (c == '%' || c == '[') return results_or_header();
  if (!is_word(c)) refuse(here(), " stands where a line of the graph belongs");
  const size_t begin = at_;
  const std::string_view found = word();
  if (found == "none") {
    at_ = begin;
    return results_or_header();
  }
  if (found == "return") {
    skip(false);
    while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '}') {
      graph_.results.push_back(take_word("none") ? kNoValue : operand());
      if (!take(',')) break;
    }
    done_ = true;
    return;
  }
  if (found == "grad") return grad_result();
  if (found == "grad_mode") {
    expect('(', "after 'grad_mode'");
    const size_t at = at_;
    const std::string_view mode = word();
    if (mode != "true" && mode != "false") refuse_at(at, "write grad_mode(true) or (false)");
    grad_mode_ = mode == "true";
    expect(')', "after the mode");
    return;
  }
  at_ = begin;
  call({});
}

Leaf Parser::leaf() {
  skip(depth_ > 0);
  const size_t begin = at_;
  const std::string_view kind = word();
  if (kind != "argument" && kind != "outside") {
    refuse_at(begin, shown(kind), " is no leaf: write one such as 'outside 0' or 'argument 0'");
  }
  const auto index = static_cast<int32_t>(count("the number of a leaf", kMaxIndex));
  if (kind == "outside") return {Origin::kOutside, index};
  if (index >= static_cast<int32_t>(graph_.arguments.size())) {
    refuse_at(begin, "the graph has ", graph_.arguments.size(), " arguments, and no argument ",
              index);
  }
  return {Origin::kArgument, index};
}

void Parser::grad_result() {
  expect('(', "after 'grad'");
  GradResult grad{leaf(), kNoValue};
  expect(')', "after a leaf");
  expect('=', "between a leaf and its grad");
  if (!take_word("none")) grad.grad = operand();
  graph_.grads.push_back(grad);
}

void Parser::results_or_header() {
  std::vector<Arg> results;
  Declared last;
  const auto one = [&](Arg* to) {
    last = take_word("none") ? Declared() : declaration();
    to->values.push_back(last.id);
  };
  do {
    Arg& result = results.emplace_back(Arg{Arg::kTensor, {}, {}});
    if (take('[')) {
      result.kind = Arg::kTensors;
      list(']', [&] { one(&result); });
    } else {
      one(&result);
    }
  } while (take(','));
  const bool single = results.size() == 1 && results[0].kind == Arg::kTensor && last.id != kNoValue;
  if (!take('=')) {
    if (!single || last.fresh) {
      refuse(here(), " stands where '=' and a call belong, or 'in %0' for another view of %0");
    }
    check_bools(last);
    return;
  }
  skip(false);
  const size_t begin = at_;
  const std::string_view name = word();
  if (name == "outside" || name == "grad" || name == "memory") {
    if (!single || !last.fresh) {
      refuse_at(begin, shown(name), " defines one new value, which is in no other");
    }
    return source(name, begin, graph_.values[last.id].buffer);
  }
  at_ = begin;
  call(std::move(results));
}

// Reads the memory of a value that no operator gives, after its kind.
void Parser::source(std::string_view kind, size_t begin, int32_t buffer) {
  expect('(', "after the kind of a value");
  Buffer& made = graph_.buffers[buffer];
  if (kind == "outside") {
    made.origin = Origin::kOutside;
    made.index = static_cast<int32_t>(count("the number of a tensor", kMaxIndex));
    if (!outside_.insert(made.index).second) {
      refuse_at(begin, "outside(", made.index,
                ") is defined above: write its other views as '%1: float32[2] in %0'");
    }
  } else if (kind == "grad") {
    made.origin = Origin::kGrad;
    made.leaf = leaf();
  } else {
    is_empty_[buffer] = true;
    // "all": as many as its values have.
    is_memory_[buffer] = symbols_.empty() || !take_word("all");
    if (is_memory_[buffer]) {
      made.bytes = static_cast<uint64_t>(count("the number of bytes", kMaxExtent));
    }
  }
  expect(')', "after the kind of a value");
}

void Parser::find_operator(std::string_view name, size_t at, Node* node) const {
  const size_t dot = name.find('.');
  const std::string base(name.substr(0, dot));
  const std::string overload(dot == std::string_view::npos ? "" : name.substr(dot));
  const auto find = [&](size_t suffix, Form form) {
    if (base.size() <= suffix) return false;
    const std::string full = base.substr(0, base.size() - suffix) + overload;
    if (const OpEntry* entry = find_op(full)) {
      node->entry = entry;
      node->form = form;
    }
    return node->entry != nullptr;
  };
  bool found = find(0, kFunction);
  if (!found && base.ends_with("_")) found = find(1, kInplace);
  if (!found && base.ends_with("_out")) found = find(4, kOut);
  if (!found) {
    refuse_at(at, "there is no operator ", shown(name), ": `mytorch ops` lists them",
              name.find(':') != std::string_view::npos
                  ? ", and a program registers its own before it reads a graph that calls them"
                  : "");
  }
  const OpInfo& op = node->op();
  const bool has_form = node->form == kInplace ? op.boxed_inplace != nullptr
                        : node->form == kOut   ? op.boxed_out != nullptr
                                               : op.custom != nullptr || op.boxed != nullptr;
  if (!has_form) refuse_at(at, op.name, " has no such form: call the function");
  if (op.dynamic) {
    refuse_at(at, "the shape of the result of ", op.name, " depends on values, which a graph does ",
              "not hold");
  }
}

// Returns which arguments (or results, if `outputs`) of an operator the text states: all, or those
// of the schema with which it was written.
std::vector<bool> Parser::written_with(const OpInfo& op, size_t at, bool outputs) const {
  const int total = outputs ? op.num_outputs : op.num_args;
  std::vector<bool> stated(static_cast<size_t>(total), true);
  if (schemas_ == nullptr) return stated;
  const auto found = schemas_->find(std::string_view(op.name));
  if (found == schemas_->end()) {
    refuse_at(at, "the file states no schema of ", op.name, ": it is damaged");
  }
  if (found->second == op.hash) return stated;
  for (int i = 0; i < op.num_older; ++i) {
    if (op.older[i].hash != found->second) continue;
    for (int k = 0; k < total; ++k) {
      const uint32_t offset = outputs ? op.outputs[k].offset : op.args[k].offset;
      stated[k] = offset == kNoField || offset < op.older[i].first_new;
      if (!stated[k] && !outputs && op.args[k].default_text == nullptr) {
        refuse_at(at, op.name, " has received an argument without default since");
      }
    }
    return stated;
  }
  refuse_at(at, op.name, " has the schema ", op.schema,
            ", and the graph was written with another (",
            absl::Hex(found->second, absl::kZeroPad16),
            "), by a newer version or a program that registers another operator of this name");
}

Arg Parser::argument(const ArgInfo& info, const OpInfo& op) {
  skip(true);
  const size_t begin = at_;
  const auto value = [](Value v) { return Arg{Arg::kConstant, {}, std::move(v)}; };
  if (take_word("none")) {
    if (!info.optional && info.type != ArgType::kGenerator) {
      refuse_at(begin, "argument '", info.name, "' of ", op.name, " must be given");
    }
    return {};
  }
  switch (info.type) {
    case ArgType::kTensor:
      return Arg::tensor(operand());
    case ArgType::kOperand:
      return next_is('%') ? Arg::tensor(operand()) : value(scalar());
    case ArgType::kTensorList: {
      Arg arg{Arg::kTensors, {}, {}};
      expect('[', "before a list of values");
      list(']', [&] { arg.values.push_back(take_word("none") ? kNoValue : operand()); });
      return arg;
    }
    case ArgType::kScalar:
      return value(scalar());
    case ArgType::kInt:
      return value(Scalar(integer("an argument")));
    case ArgType::kBool: {
      const std::string_view found = word();
      if (found != "true" && found != "false") {
        refuse_at(begin, "argument '", info.name, "' of ", op.name, " is true or false");
      }
      return value(Scalar(found == "true"));
    }
    case ArgType::kFloat:
      return value(Scalar(real()));
    case ArgType::kIntList: {
      std::vector<int64_t> numbers;
      expect('[', "before a list of integers");
      list(']', [&] { numbers.push_back(integer("an item")); });
      return value(std::move(numbers));
    }
    case ArgType::kFloatList: {
      std::vector<double> numbers;
      expect('[', "before a list of numbers");
      list(']', [&] { numbers.push_back(real()); });
      return value(std::move(numbers));
    }
    case ArgType::kStr:
      return value(quoted());
    case ArgType::kScalarType:
      return value(dtype());
    case ArgType::kDevice:
      return value(device());
    case ArgType::kGenerator:
      if (!take_word("generator")) {
        refuse(here(), " stands where 'generator' belongs: a text names the default generator");
      }
      return value(default_generator());
    case ArgType::kHandle:
      break;
  }
  refuse_at(begin, "argument '", info.name, "' of ", op.name,
            " is an object of a running program, which a text cannot hold");
}

// Memory that no operator made holds nothing until an operator replaces it.
void Parser::check_memory(const Node& node, const std::vector<size_t>& places) {
  if (node.op().meaning == Meaning::kView) return;
  const auto buffer_of = [&](ValueId id) { return graph_.values[id].buffer; };
  std::vector<int32_t> replaced;
  for (size_t i = 0; i < node.args.size(); ++i) {
    for (const ValueId id : node.args[i].values) {
      if (id == kNoValue || !is_empty_[buffer_of(id)]) continue;
      if (!node.overwrites(i)) {
        refuse_at(places[i], "%", id, " is memory that holds nothing yet: fill it first");
      }
      replaced.push_back(buffer_of(id));
    }
  }
  for (const int32_t buffer : replaced) is_empty_[buffer] = false;
}

void Parser::call(std::vector<Arg> results) {
  skip(false);
  const size_t begin = at_;
  const std::string_view name = word();
  Node node;
  node.grad_mode = grad_mode_;
  find_operator(name, begin, &node);
  const OpInfo& op = node.op();
  const std::vector<bool> stated = written_with(op, begin, false);
  const int outs = node.form == kOut ? op.num_outputs : 0;
  expect('(', "after the name of an operator");
  std::vector<size_t> places;
  int schema_arg = -outs;
  list(')', [&] {
    while (schema_arg >= 0 && schema_arg < op.num_args && !stated[schema_arg]) {
      node.args.push_back({Arg::kConstant, {}, default_value(op.args[schema_arg++])});
      places.push_back(at_);
    }
    skip(true);
    places.push_back(at_);
    if (schema_arg == op.num_args) refuse(op.name, " has ", op.num_args + outs, " arguments here");
    if (schema_arg < 0) {
      node.args.push_back(Arg::tensor(operand()));
    } else {
      node.args.push_back(argument(op.args[schema_arg], op));
    }
    ++schema_arg;
  });
  for (; schema_arg < op.num_args; ++schema_arg) {
    if (schema_arg < 0 || stated[schema_arg]) {
      refuse(op.name, " has ", op.num_args + outs, " arguments here, and ", node.args.size(),
             " are given: ", op.schema);
    }
    node.args.push_back({Arg::kConstant, {}, default_value(op.args[schema_arg])});
    places.push_back(at_);
  }
  const bool writes = node.form == kInplace || (node.form == kFunction && node.overwrites(0));
  if (writes && (node.args.empty() || node.args[0].kind != Arg::kTensor)) {
    refuse_at(begin, shown(name), " writes its first argument, which is no tensor");
  }
  check_memory(node, places);
  const bool noted = take_word("wanted");
  if (noted) {
    if (!op.derived) refuse("'wanted' belongs to derived gradients alone");
    node.wanted = 0;
    expect('[', "after 'wanted'");
    list(']', [&] { node.wanted |= 1u << count("the number of a result", 7); });
  }
  if (node.form != kFunction && !results.empty()) {
    refuse_at(begin, shown(name),
              " writes its arguments and gives no results: write the call alone");
  }
  if (op.derived && (op.num_outputs > 8 || static_cast<int>(results.size()) > 8)) {
    refuse_at(begin, "a derived gradient has at most 8 results");
  }
  node.results = std::move(results);
  // Results that the operator has received since are not used.
  if (node.form == kFunction && !node.results.empty()) {
    for (const bool each : written_with(op, begin, true)) {
      if (!each) node.results.push_back(Arg::tensor(kNoValue));
    }
    if (static_cast<int>(node.results.size()) != op.num_outputs) {
      refuse_at(begin, op.name, " gives ", op.num_outputs, " results, and ", node.results.size(),
                " are written: ", op.schema);
    }
  }
  // Without a note, the results that are stated are wanted.
  if (op.derived && !noted) {
    node.wanted = 0;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Arg& result = node.results[i];
      const bool computed = !result.values.empty() && result.values[0] != kNoValue;
      node.wanted |= uint32_t{computed} << i;
    }
  }
  graph_.nodes.push_back(std::move(node));
}

// Views of an argument stay within the elements that arguments have.
void Parser::check_arguments() const {
  std::vector<int64_t> begins(graph_.buffers.size(), INT64_MAX), ends(graph_.buffers.size(), 0);
  const auto bytes_of = [](const ValueInfo& info) {
    const Span span = span_of(info);
    const int64_t size = element_size(info.dtype);
    return Span{span.begin * size, span.end * size};
  };
  for (const ValueId id : graph_.arguments) {
    const Span span = bytes_of(graph_.values[id]);
    int64_t& begin = begins[graph_.values[id].buffer];
    int64_t& end = ends[graph_.values[id].buffer];
    begin = std::min(begin, span.begin);
    end = std::max(end, span.end);
  }
  for (size_t id = 0; id < graph_.values.size(); ++id) {
    const ValueInfo& info = graph_.values[id];
    if (info.buffer < 0) continue;
    const Buffer& buffer = graph_.buffers[info.buffer];
    const Span span = bytes_of(info);
    if (span.begin == span.end) continue;
    const bool fits = buffer.origin != Origin::kArgument ||
                      (span.begin >= begins[info.buffer] && span.end <= ends[info.buffer]);
    if (!fits) {
      fail(ErrorCode::kValue, "[graph] %", id, " leaves the memory of argument ", buffer.index,
           ": a view has elements of the argument alone");
    }
  }
}

void Parser::finish() {
  check_arguments();
  // Memory that nothing filled does not leave.
  const auto check = [this](ValueId id) {
    if (id != kNoValue && is_empty_[graph_.values[id].buffer]) {
      fail(ErrorCode::kValue, "[graph] %", id, " is returned, and nothing fills it");
    }
  };
  for (const ValueId id : graph_.results) check(id);
  for (const GradResult& grad : graph_.grads) check(grad.grad);
  // The bytes of other memory are those of its values.
  int32_t unused = -1;
  for (ValueInfo& info : graph_.values) {
    if (info.buffer < 0) {  // a number that the text does not use
      if (unused < 0) unused = add_buffer(Device());
      info = {unused, kUInt8, {0}, {1}, 0};
      continue;
    }
    Buffer& buffer = graph_.buffers[info.buffer];
    const auto bytes = static_cast<uint64_t>(span_of(info).end * element_size(info.dtype));
    if (!is_memory_[info.buffer]) {
      buffer.bytes = std::max(buffer.bytes, bytes);
    } else if (bytes > buffer.bytes) {
      fail(ErrorCode::kValue, "[graph] a view leaves memory(", buffer.bytes,
           "): write memory of at least ", bytes, " bytes");
    }
  }
}

}  // namespace

Span span_of(const ValueInfo& info) {
  Wide begin = info.offset, end = info.offset, product = 1;
  bool empty = false;
  for (size_t i = 0; i < info.sizes.size(); ++i) {
    empty = empty || info.sizes[i] == 0;
    product *= std::max<int64_t>(info.sizes[i], 1);
    if (info.sizes[i] < 0 || product > kMaxExtent / element_size(info.dtype)) {
      fail(ErrorCode::kValue, "the shape ", shape_str(as_list(info.sizes)),
           " has too many elements");
    }
    const Wide reach = Wide{info.strides[i]} * std::max<int64_t>(info.sizes[i] - 1, 0);
    (reach < 0 ? begin : end) += reach;
    if (begin < 0 || end > kMaxExtent / element_size(info.dtype)) {
      fail(ErrorCode::kValue, "a view with these sizes, strides and offset leaves its memory");
    }
  }
  if (info.offset < 0 || end >= kMaxExtent / element_size(info.dtype)) {
    fail(ErrorCode::kValue, "a view with this offset leaves its memory");
  }
  if (empty) return {};
  return {static_cast<int64_t>(begin), static_cast<int64_t>(end) + 1};
}

Graph parse_text(std::string_view text, const Schemas* schemas, std::vector<Symbol>* symbols) {
  const std::vector<Symbol> sizes = symbols != nullptr ? *symbols : std::vector<Symbol>();
  Parser parser(text, schemas, sizes);
  Graph graph = parser.run();
  if (symbols != nullptr) *symbols = parser.take_symbols();
  return graph;
}

Schemas schemas_of(const Graph& graph) {
  Schemas found;
  for (const Node& node : graph.nodes) found.emplace(node.op().name, node.op().hash);
  return found;
}

}  // namespace mytorch::graph
