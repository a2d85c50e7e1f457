import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'

/** A process, and what it says. */
export interface Run {
  child: ChildProcess
  text: { stdout: string; stderr: string }
  /** The exit code, when both streams have ended. */
  ended: Promise<number | null>
}

export function watch(child: ChildProcess): Run {
  const text = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]!.on('data', (chunk) => {
      text[name] += chunk
    })
  }
  return { child, text, ended: once(child, 'close').then(([code]) => code) }
}

/** Resolves with what `pattern` finds as soon as the process has said it. */
export async function says({ child, text }: Run, pattern: RegExp): Promise<string[]> {
  for (;;) {
    const found = pattern.exec(text.stdout + text.stderr)
    if (found) return found
    if (child.exitCode !== null) {
      throw new Error(
        `expected ${pattern}, got the exit of a process that said: ${text.stdout}${text.stderr}`,
      )
    }
    const heard = new AbortController()
    const { signal } = heard
    const more = [once(child.stdout!, 'data', { signal }), once(child.stderr!, 'data', { signal })]
    for (const one of more) one.catch(() => undefined)
    await Promise.race([...more, once(child, 'exit', { signal })])
    heard.abort()
  }
}
