// What the file of a program holds, and the functions that read and write it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "graph/formats/parse.h"
#include "mytorch/program.h"

namespace mytorch::graph {

struct SavedProgram {
  Recorded recorded;
  std::vector<std::string> inputs;   // names, one per argument
  std::vector<std::string> outputs;  // one per result
  std::vector<std::string> state;    // one per tensor from outside
  std::map<std::string, std::string> metadata;
  // Of a graph with symbols: its text, the schemas with which it was written, and its symbols at
  // the sizes of `recorded`.
  std::string text;
  Schemas schemas;
  std::vector<SizeSymbol> symbols;
};

// Returns what to save of a recording, whose graph is read back from its text: `text`, unless it is
// empty, of a graph with symbols. Throws
// Error(kValue) if names are missing, twice or unknown, and Error(kUnsupported), naming the
// operator, if a file cannot hold the graph.
SavedProgram to_saved(const Recorded& recorded, const SaveOptions& options,
                      const std::string& text = "");

// Throws Error(kValue) unless the parts fit each other: names and tensors are as many as the graph
// refers to, and grads are those of tensors from outside.
void check_saved(const SavedProgram& saved);

// The format of files, which nn/serialize implements. Null if that is not linked.
struct ProgramFiles {
  void (*save)(const SavedProgram& saved, const std::string& path);
  SavedProgram (*load)(const std::string& path);
};
extern const ProgramFiles* program_files;

// Writes a recording. Throws as to_saved(), and Error(kIo).
void save_program(const Recorded& recorded, const SaveOptions& options, const std::string& path,
                  const std::string& text = "");

}  // namespace mytorch::graph
