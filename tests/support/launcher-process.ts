import { join } from 'node:path'
import { expect } from 'vitest'
import { type LoggedProcess, startNode } from './program-process.ts'
import { repository } from './repository.ts'

/** `tabring run` and `tabring launch` as processes. */

export type Run = LoggedProcess

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
export async function says({ child, received, ended }: Run, text: string): Promise<void> {
  await new Promise<void>((resolve) => {
    const look = () => {
      if (received.stdout.includes(text) || received.stderr.includes(text)) resolve()
    }
    for (const stream of [child.stdout, child.stderr]) stream.on('data', look)
    ended.then(() => resolve())
    look()
  })
  expect(received.stdout + received.stderr).toContain(text)
}
