import type { ChildProcess } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect } from 'vitest'
import { type Run, startLauncher } from './launcher-process.ts'

/** Where the user's modules are. */
export let folder: string
const children: ChildProcess[] = []

export function start(command: 'run' | 'launch', argv: readonly string[], environment = {}): Run {
  const run = startLauncher(folder, command, argv, environment)
  children.push(run.child)
  return run
}

/** The ids of a process and all below it, zombies left out. */
export async function family(root: number): Promise<number[]> {
  const parents = new Map<number, number>()
  for (const name of await readdir('/proc')) {
    const stat = /^\d+$/.test(name)
      ? await readFile(`/proc/${name}/stat`, 'utf8').catch(() => '')
      : ''
    const form = /^(\d+) \(.*\) (\S) (\d+)/s.exec(stat)
    if (form && form[2] !== 'Z') parents.set(Number(form[1]), Number(form[3]))
  }
  const found = [root]
  for (let i = 0; i < found.length; i++) {
    for (const [child, parent] of parents) if (parent === found[i]) found.push(child)
  }
  return found.filter((id) => parents.has(id))
}

export const write = (name: string, ...lines: readonly string[]) =>
  writeFile(join(folder, name), lines.join('\n'))

/** The values in a line `{…}` of each rank, by rank. */
export function receivedByRank(stdout: string): Record<string, string>[] {
  const lines = [...stdout.matchAll(/^\[(\d+)\]: (\{.*\})$/gm)]
  return lines
    .map(([, rank, json]): [number, Record<string, string>] => [Number(rank), JSON.parse(json)])
    .sort(([a], [b]) => a - b)
    .map(([, received]) => received)
}

/** A module of a user's that joins the other ranks over WebRTC, by the launcher's environment, and hears from each. */
const syncPoint = [
  "import * as dist from 'tabring/distributed'; import { destroyProcessGroup, env, initProcessGroup } from 'tabring/distributed'",
  'export async function meet(): Promise<string[]> {',
  "  await initProcessGroup({ initMethod: 'env://', backend: 'webrtc' })",
  '  const ranks = await dist.allGatherObject(new Array(+env.WORLD_SIZE), env.RANK)',
  '  await dist.barrier()',
  '  await destroyProcessGroup()',
  '  return ranks',
  '}',
]

/** Makes a folder with a user's modules for the tests of this file. */
export function useLauncherFolder(): void {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tabring-run-'))
    // A package of the user's, and no tabring among them: the launcher brings its own.
    const installed = join(folder, 'node_modules', 'some-package')
    await mkdir(installed, { recursive: true })
    await writeFile(
      join(installed, 'package.json'),
      '{ "name": "some-package", "type": "module", "exports": "./index.js" }',
    )
    await writeFile(join(installed, 'index.js'), 'export const answer = 42\n')
    await write('meet.ts', ...syncPoint)
  })
  afterAll(() => rm(folder, { recursive: true }))
  let before: string[]
  beforeEach(async () => {
    before = await readdir(tmpdir())
  })
  afterEach(async () => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
    // What was built for a run has gone with it.
    const left = (await readdir(tmpdir())).filter((name) => !before.includes(name))
    expect(left.filter((name) => name.startsWith('tabring-run-'))).toEqual([])
  })
}
