import type { ChildProcess } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach } from 'vitest'
import { type LoggedProcess, startTrain } from './program-process.ts'

export interface TrainFolder {
  /** An empty folder of each test, removed after it. */
  readonly path: string
  /** Starts `npm run train` as a process that does not outlive its test. */
  start(environment: NodeJS.ProcessEnv, ...argv: string[]): LoggedProcess
}

/** What the file's tests of `npm run train` have in common: a folder each, and no process left. */
export function useTrainFolder(): TrainFolder {
  let path = ''
  const children: ChildProcess[] = []
  beforeEach(async () => {
    path = await mkdtemp(join(tmpdir(), 'tabring-'))
  })
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    await rm(path, { recursive: true })
  })
  return {
    get path() {
      return path
    },
    start(environment, ...argv) {
      const started = startTrain(argv, environment)
      children.push(started.child)
      return started
    },
  }
}
