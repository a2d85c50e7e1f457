import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { repository } from './repository.ts'

/** A command as a process, and what it has said so far. */
export interface LoggedProcess {
  child: ChildProcessByStdio<null, Readable, Readable>
  told: { stdout: string; stderr: string }
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
  const told = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk) => {
    told.stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    told.stderr += chunk
  })
  return { child, told, ended: once(child, 'close').then(([code]) => code) }
}

/** Starts `npm run train` without npm. */
export const startTrain = (
  argv: readonly string[],
  environment: NodeJS.ProcessEnv = {},
): LoggedProcess =>
  startNode(repository, ['--import', 'tsx', 'node/train.ts', ...argv], environment)
