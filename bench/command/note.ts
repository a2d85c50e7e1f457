/** Says on standard error how far the benchmark is; standard output is for results. */
export const note = (line: string): void => {
  process.stderr.write(`bench: ${line}\n`)
}
