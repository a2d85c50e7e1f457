import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { expect } from 'vitest'

/** `tabring run` and `tabring launch` as processes. */

const repository = join(import.meta.dirname, '..', '..')

export interface Run {
  child: ChildProcess
  told: { stdout: string; stderr: string }
  /** The exit code, when both streams have ended. */
  ended: Promise<number | null>
}

/** Starts a command in `folder`, which is its home too. */
export function startLauncher(
  folder: string,
  command: 'run' | 'launch',
  argv: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Run {
  const child = spawn(
    process.execPath,
    [join(repository, 'bin', 'tabring.js'), command, '--adapter', 'software', ...argv],
    {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, HOME: folder, ...environment },
    },
  )
  const told = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk) => {
    told.stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    told.stderr += chunk
  })
  return { child, told, ended: once(child, 'close').then(([code]) => code) }
}

/** Waits until the process has said something. */
export async function says({ child, told, ended }: Run, text: string): Promise<void> {
  let hasEnded = false
  void ended.then(() => {
    hasEnded = true
  })
  while (!hasEnded && !told.stdout.includes(text) && !told.stderr.includes(text)) {
    await Promise.race([once(child.stdout!, 'data'), once(child.stderr!, 'data'), ended])
  }
  expect(told.stdout + told.stderr).toContain(text)
}
