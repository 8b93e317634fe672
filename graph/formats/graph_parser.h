// Reads the text of a graph (parse.h), line by line: parse_values.cpp reads values with their
// types, parse_calls.cpp calls of operators, and parse.cpp the lines around them.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/formats/parse.h"
#include "graph/formats/text_reader.h"

namespace mytorch::graph {

class GraphParser : private TextReader {
 public:
  GraphParser(std::string_view text, const Schemas* schemas, const std::vector<SizeSymbol>& sizes)
      : TextReader(text), schemas_(schemas), sizes_(sizes) {}

  Graph run();
  std::vector<SizeSymbol> take_symbols() { return std::move(found_symbols_); }

 private:
  // ---- values and their types ----

  // Reads the number of a value, after "%".
  ValueId number();
  bool is_known(ValueId id) const;
  // Reads the name of a value. Results of a line may share memory with each other, so they are
  // known to the types of the line, but not to its operands.
  ValueId reference(bool in_type);
  ValueId operand() { return reference(false); }
  // Lets the lines below use the values that this one has defined.
  void end_line();
  int32_t add_buffer(const Device& on);

  struct Declared {
    size_t at = 0;
    ValueId id = kNoValue;
    bool fresh = false;  // whether the value has memory of its own, which the line defines
  };
  // Reads and defines a value with its type, as in "%3: float32[2, 3] cuda:0 in %0 + 4".
  Declared declaration();
  // Kernels rely on the bytes of bools to be 0 or 1.
  void check_bools(const Declared& found) const;
  // Reads "[64, 784; 1, 64]".
  void geometry(size_t at, ValueInfo* info);
  // Reads a size such as "n = 64", if one stands here: it defines a symbol.
  bool define_symbol(Dims* sizes);
  bool next_is_word();
  void check_span(size_t at, const ValueInfo& info) const;

  // ---- lines ----

  void arguments();
  void statement();
  void results_or_header();
  void source(std::string_view kind, size_t begin, int32_t buffer);
  Leaf leaf();
  void grad_result();
  void check_arguments() const;
  void finish();

  // ---- calls of operators ----

  void call(std::vector<Arg> results);
  void find_operator(std::string_view name, size_t at, GraphNode* node) const;
  Arg argument(const ArgInfo& info, const OpInfo& op);
  std::vector<bool> written_with(const OpInfo& op, size_t at, bool outputs) const;
  void check_memory(const GraphNode& node, const std::vector<size_t>& places);

  const Schemas* schemas_;
  const std::vector<SizeSymbol>& sizes_;
  std::vector<SizeSymbol> found_symbols_;
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

}  // namespace mytorch::graph
