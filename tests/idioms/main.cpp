// Runs the idioms of a topic, none of which may throw: idioms_test TOPIC.
#include <cstdio>
#include <exception>

#include "tests/idioms/idioms.h"

int main(int count, char** arguments) {
  int failures = 0;
  const auto found = idioms::topics().find(count == 2 ? arguments[1] : "");
  if (found == idioms::topics().end()) {
    std::fprintf(stderr, "usage: idioms_test TOPIC\n");
    for (const auto& topic : idioms::topics()) {
      std::fprintf(stderr, "  %s\n", topic.first.c_str());
    }
    return 2;
  }
  const auto& [name, all] = *found;
  for (const idioms::Idiom& idiom : all) {
    try {
      idiom.run();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s.idioms:%d: %s\n", name.c_str(), idiom.line, error.what());
      ++failures;
    }
  }
  std::fprintf(stderr, "%zu idioms, %d failures\n", all.size(), failures);
  return failures == 0 ? 0 : 1;
}
