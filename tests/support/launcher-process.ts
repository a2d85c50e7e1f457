import { once } from 'node:events'
import { join } from 'node:path'
import { expect } from 'vitest'
import { repository } from './repository.ts'
import { startNode, type ToldProcess } from './told-process.ts'

/** `tabring run` and `tabring launch` as processes. */

export type Run = ToldProcess

/** Starts a command in `folder`, which is its home too. */
export function startLauncher(
  folder: string,
  command: 'run' | 'launch',
  argv: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Run {
  const program = join(repository, 'bin', 'tabring.js')
  const own = { HOME: folder, ...environment }
  return startNode(folder, [program, command, '--adapter', 'software', ...argv], own)
}

/** Waits until the process has said something. */
export async function says({ child, told, ended }: Run, text: string): Promise<void> {
  let hasEnded = false
  void ended.then(() => {
    hasEnded = true
  })
  while (!hasEnded && !told.stdout.includes(text) && !told.stderr.includes(text)) {
    await Promise.race([once(child.stdout, 'data'), once(child.stderr, 'data'), ended])
  }
  expect(told.stdout + told.stderr).toContain(text)
}
