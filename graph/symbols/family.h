// Recordings of one function at several sizes as one graph of symbols.
//
// The recordings have the same nodes. Every integer and number in them is a function of the sizes,
// which is fitted to the recordings (polynomial.h, number_form.h); from the third on, the graph at
// another size follows without running the function. Where several functions fit, they must agree
// at that size: otherwise the size is recorded, which tells them apart.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "graph/symbols/number_form.h"
#include "graph/symbols/polynomial.h"

namespace mytorch::graph {

// The numbers of graphs, in the order in which they stand there.
struct GraphNumbers {
  std::vector<int64_t> integers;
  std::vector<double> reals;
};

class Family {
 public:
  // Begins with a recording of one or more graphs. `names` of the symbols may be "": such symbols
  // are one where they are equal in all recordings. `declared` says for each symbol whether the
  // graph holds beyond the sizes that were recorded.
  Family(std::vector<Recorded> parts, SymbolValues sizes, std::vector<std::string> names,
         std::vector<bool> declared);

  // Adds a recording. Returns "" or why it is not the same graph at other sizes, naming the
  // operator; the family then stays as it is.
  std::string add(const std::vector<Recorded>& parts, const SymbolValues& sizes);

  // Returns the graphs at other sizes, or nothing, and then why in `reason`. An empty reason: the
  // sizes are none of this family.
  std::optional<std::vector<Recorded>> at(const SymbolValues& sizes, std::string* reason) const;

  const std::vector<Recorded>& base() const { return base_; }
  bool ready() const { return sizes_.size() >= 3; }
  // Returns the text of the first graph with its symbols, or "" until the family is ready.
  // `places` says for each symbol the argument and the dimension that it is.
  struct SymbolPlace {
    size_t argument;
    size_t dim;
  };
  std::string text(const std::vector<SymbolPlace>& places) const;

 private:
  struct Fitted {
    std::vector<size_t> symbols;     // the first of each class of equal ones
    std::vector<size_t> integer_of;  // the column of each integer
    std::vector<size_t> real_of;     // and of each number
    std::vector<std::vector<Polynomial>> integers;
    std::vector<std::vector<NumberForm>> reals;
  };
  // Fits functions to samples. `reason` receives what has none.
  std::optional<Fitted> fitted(const std::vector<SymbolValues>& sizes,
                               const std::vector<GraphNumbers>& numbers, std::string* reason) const;
  SymbolValues reduced(const SymbolValues& sizes, const Fitted& by) const;

  std::vector<Recorded> base_;
  std::vector<std::string> names_;
  std::vector<bool> declared_;
  std::vector<SymbolValues> sizes_;    // of the recordings
  std::vector<GraphNumbers> numbers_;  // likewise
  SymbolValues least_, most_;
  Fitted fitted_;
};

}  // namespace mytorch::graph
