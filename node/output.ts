/** What reporters write to: process.stdout and process.stderr, or a test's. */
export interface Output {
  write(text: string): unknown
  isTTY?: boolean
}
