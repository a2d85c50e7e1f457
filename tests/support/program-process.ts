import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { repository } from './repository.ts'

/** A command as a process, and what it has said so far. */
export interface LoggedProcess {
  child: ChildProcessByStdio<null, Readable, Readable>
  received: { stdout: string; stderr: string }
  /** The exit code, when both streams have ended. */
  ended: Promise<number | null>
}

/** Starts Node with these arguments in `folder`. */
export function startNode(
  folder: string,
  argv: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): LoggedProcess {
  const child = spawn(process.execPath, argv, {
    cwd: folder,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...environment },
  })
  const received = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk) => {
    received.stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    received.stderr += chunk
  })
  return { child, received, ended: once(child, 'close').then(([code]) => code) }
}

/** Starts `npm run train` without npm. */
export const startTrain = (
  argv: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): LoggedProcess =>
  startNode(repository, ['--import', 'tsx', 'node/train.ts', ...argv], environment)
