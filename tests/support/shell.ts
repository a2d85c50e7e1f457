// Reads the commands of a shell script as the documentation has them: words, quotes, comments, several commands on a line.

/** Returns the words of each command of the text. Variables that are set for a command are left out. */
export function commandsIn(text: string): string[][] {
  const lines = text.replaceAll(/\\\n\s*/g, ' ').split('\n')
  return lines.flatMap(commandsOfLine)
}

function commandsOfLine(line: string): string[][] {
  const commands: string[][] = [[]]
  const parts = /"([^"]*)"|'([^']*)'|(#.*)|(&&|\|\||[;|])|([^\s"';|&]+)/g
  for (const [, double, single, comment, operator, word] of line.matchAll(parts)) {
    if (comment !== undefined) break
    if (operator !== undefined) commands.push([])
    else commands.at(-1)!.push(double ?? single ?? word)
  }
  return commands
    .map((words) => words.slice(words.findIndex((word) => !/^[A-Z_]+=/.test(word))))
    .filter((words) => words.length > 0)
}
