import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { startNode } from '../../support/program-process.ts'
import { repository } from '../../support/repository.ts'

// How a command ends. Opening a pipe that nobody writes to never returns, like a call on a disk that does not answer.

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
  execFileSync('mkfifo', [join(folder, 'pipe')])
})
afterAll(() => rm(folder, { recursive: true }))

/** Starts a command whose `main` has these lines; it has begun when it has said so. */
async function begin(...main: string[]) {
  const from = (path: string) => JSON.stringify(join(repository, path))
  const script = join(folder, 'command.mts')
  await writeFile(
    script,
    [
      "import { open } from 'node:fs/promises'",
      `import { runCommand } from ${from('node/run-command.ts')}`,
      `import { orAbort } from ${from('src/util/or-abort.ts')}`,
      `const pipe = ${JSON.stringify(join(folder, 'pipe'))}`,
      "await runCommand('command', async (_, signal) => {",
      "  process.stdout.write('begun\\n')",
      ...main,
      '  return 0',
      "}, { interrupted: () => 'nothing is left', failed: String })",
    ].join('\n'),
  )
  const command = startNode(repository, ['--import', 'tsx', script])
  await once(command.child.stdout, 'data')
  return command
}

test('Ctrl-C ends a command that waits for a disk', { timeout: 10_000 }, async () => {
  const { child, received, ended } = await begin('await orAbort(open(pipe), signal)')
  child.kill('SIGINT')
  await ended
  expect([child.signalCode, received.stderr]).toEqual([
    'SIGINT',
    'command: interrupted; nothing is left\n',
  ])
})

test('a second Ctrl-C ends a command that does not hear the first', {
  timeout: 10_000,
}, async () => {
  const { child, ended } = await begin('await open(pipe)')
  child.kill('SIGINT')
  await new Promise((resolve) => setTimeout(resolve, 800))
  child.kill('SIGINT')
  await ended
  expect(child.signalCode).toBe('SIGINT')
})

test('a command ends when nobody reads its output and errors', { timeout: 10_000 }, async () => {
  const { child, ended } = await begin(
    "setInterval(() => process.stderr.write('line\\n'), 20)",
    'await orAbort(new Promise(() => undefined), signal)',
  )
  child.stdout.destroy()
  child.stderr.destroy()
  await once(child, 'exit')
  await ended.catch(() => undefined)
  expect(child.exitCode).toBe(141)
})
