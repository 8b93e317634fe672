// The functions that generate.py makes of idioms.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace idioms {

struct Idiom {
  int line;  // in the topic's file
  void (*run)();
};

inline std::map<std::string, std::vector<Idiom>>& topics() {
  static std::map<std::string, std::vector<Idiom>> all;
  return all;
}

// Adds a topic's idioms to topics().
struct Topic {
  Topic(const char* name, std::initializer_list<Idiom> idioms) { topics()[name] = idioms; }
};

}  // namespace idioms
