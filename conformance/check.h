// The library behind `mytorch check`: compares every operator of a backend with the reference.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/failure.h"
#include "conformance/inputs.h"

namespace mytorch::conformance {

// The outcome of one case.
struct Outcome {
  std::string op;
  int number = -1;
  bool refused = false;  // the backend and the reference both refuse the type
  Route route = Route::kNone;
  double worst = 0;  // the largest error as a fraction of the allowed error
  std::vector<Failure> failures = {};
  bool missing = false;  // needs a kernel that Options::missing lists
  std::string dtype = {};
  bool in_regions = false;    // a backend ran it as a region of a compiled function
  bool not_in_graph = false;  // no graph of a compiled function can hold it
};

// The outcomes of some cases.
struct Counts {
  int cases = 0;
  int failed = 0;
  int refused = 0;
  int missing = 0;
  int in_regions = 0;
  int not_in_graph = 0;
  int routes[5] = {};  // by Route
  double worst = 0;

  void count(const Outcome& outcome);
};

// The outcomes of one operator's cases.
struct Score : Counts {
  std::vector<Failure> failures;
  std::map<std::string, Counts> types;  // of the cases of each type

  void add(const Outcome& outcome);
  Route route() const;  // the slowest one of any case
};

struct Options {
  std::string backend;   // "": the one that the dispatcher chooses on `device`
  std::string plugin;    // path of the backend's library, if the backend was given as one
  bool fallback = true;  // of a plug-in: operators without a kernel run on the CPU
  // Primitives without which the backend is complete: calls that need their kernels are counted.
  std::vector<std::string> missing;
  std::string device = "cpu";
  std::vector<std::string> only;  // full or base names of operators; empty: all
  std::string dtype;              // "": every type
  std::string samples;            // path of a file with samples of a plug-in's operators
  uint64_t seed = 0;
  int number = -1;     // of the only case to run; -1: all
  bool quick = false;  // one case for each operator and kind of type
  bool gradients = true;
  bool stress = false;    // also runs the slow cases of stress.h: large sizes, several threads
  bool edges = false;     // runs the cases of edges.h instead
  bool compiled = false;  // also runs each case in a compiled function, forward and backward
  bool verbose = false;   // prints a line for each operator
  // Called before and after each case. The number is -1 for an outcome of an operator as a whole.
  std::function<void(const std::string& op, int number)> begins;
  std::function<void(const Outcome&)> ended;
  // Resumes after this case, at which another process stopped.
  std::string after_op;
  int after_number = -1;

  bool selects(const OpRecord& op) const;
};

struct Report {
  std::map<std::string, Score> scores;
  std::vector<Failure> failures;
  int cases = 0;
  int failed = 0;
  int missing = 0;
  bool ok() const { return failed == 0 && cases > 0; }
};

// Reports that a check of the running case failed.
using Fail = std::function<void(const std::string& check, const std::string& what)>;

// Calls an operator with all arguments by name.
std::vector<Value> call_named(const std::string& name, const Arguments& arguments,
                              const std::vector<Tensor>& outs = {});

// Compare the out= and in-place forms with `expected`, the result of the functional form.
void check_out_form(const Case& c, const Arguments& arguments, const std::vector<Value>& expected,
                    const Fail& fail);
void check_inplace_form(const Case& c, const Arguments& arguments,
                        const std::vector<Value>& expected, const Fail& fail);
// Checks the shape and stride rules of pointwise operators.
void check_geometry(const Case& c, const Arguments& arguments, const std::vector<Value>& results,
                    const Fail& fail);
// What compiled functions made of a case.
struct InGraphs {
  bool held = false;          // a graph held the call
  bool has_gradient = false;  // and its gradient
  std::string refusal;        // why no graph can; "" also if the call itself failed
  std::string gradient_refusal;
  bool in_regions = false;  // a backend ran it as a region
};
// Compares results, written arguments and gradients of a compiled function (mytorch/compile.h) that
// calls the operator with those of the call, bit for bit; random numbers, too, of generators with
// equal seeds; of operators that leave values open, types and shapes. Compares those of the default
// mode within the operator's tolerance, and gradients and regions of backends closely.
InGraphs check_compiled(const Case& c, const Arguments& arguments, const Fail& fail);
// Why graphs cannot hold an operator.
struct NotInGraphs {
  const char* why = "";     // "" if they can
  bool some_calls = false;  // or only some calls, because of their types or shapes
};
// Returns what the list of such operators says (not_in_graphs.cpp), or, if told, that of operators
// whose gradients graphs cannot hold.
NotInGraphs not_in_graphs(const std::string& op, bool gradient);
// Checks first and second derivatives against finite differences in float64. Returns false if the
// case is not suitable for that.
bool check_gradient(const Case& c, uint64_t seed, Device device, const Fail& fail);
using Defined = std::map<std::pair<const Json*, std::string>, bool>;
// The same for a case of edges.h, and that gradients have the shapes of their operands. `defined`
// says of a sample's operands whether a formula gave a gradient as the sample is: those must have
// one in every shape. Returns false if no operand has a gradient.
// Compares with differences only if told.
bool check_edge(const Case& c, uint64_t seed, Device device, bool differences, Defined* defined,
                const Fail& fail);

// Compares results and gradients with PyTorch's (conformance/goldens, written by
// scripts/make-goldens).
Report check_goldens(const std::vector<OpRecord>& catalog, const Options& options,
                     std::ostream& out);

// Runs the checks. Prints each failure as it occurs, and a summary at the end.
Report check(const std::vector<OpRecord>& catalog, const Options& options, std::ostream& out);

}  // namespace mytorch::conformance
