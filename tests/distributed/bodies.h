// What the ranks of a group check together, whatever its engine. Every function is called on each
// rank, and throws if a result differs from one computed directly.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mytorch/distributed.h"

namespace mytorch::distributed::bodies {

struct Body {
  std::string name;
  std::function<void(const Group&)> run;
  bool of_context = false;  // of attention
};
const std::vector<Body>& all();
std::vector<Body> context_bodies();  // of all(), those of attention
std::vector<Body> window_bodies();   // of all(), those of one-sided calls
extern Device here;                  // the device of the operands
extern int64_t many;                 // the elements of a large operand

void expect(bool holds, const std::string& what);
// Throws unless `call` throws an Error whose message has `part`.
void expect_error(const std::function<void()>& call, const std::string& part);

}  // namespace mytorch::distributed::bodies
