import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { CheckpointFolder } from '../../../node/checkpoint-folder.ts'
import { serveWritable } from '../../../node/writable-folders.ts'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { launcherFolder } from '../../../src/ddp/checkpoint/launcher-folder.ts'
import { ringOf } from '../../support/process-ring.ts'

// What a module under `tabring run --checkpoint-dir` saves and loads without giving an address.

let disk: string
let checkpoints: CheckpointFolder
let server: Server
let origin: string
const requests: string[] = []
beforeEach(async () => {
  disk = join(await mkdtemp(join(tmpdir(), 'tabring-')), 'made', 'here')
  checkpoints = new CheckpointFolder(disk)
  await checkpoints.prove()
  const handle = serveWritable(checkpoints.writable)
  requests.length = 0
  server = createServer((request, response) => {
    requests.push(`${request.method} ${request.url?.split('/').at(-1)}`)
    handle(request, response, () => response.writeHead(404).end())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterEach(async () => {
  vi.unstubAllEnvs()
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  await rm(join(disk, '..', '..'), { recursive: true, force: true })
})

test('three ranks: rank 0 writes once and reads once, and another start continues from it', async () => {
  vi.stubEnv('CHECKPOINT_URL', origin + checkpoints.offer())
  const groups = await ringOf(3)
  const all = await Promise.all(
    groups.map((processGroup) =>
      saveCheckpoint({ step: 6, bestLoss: 0.5 }, { processGroup, isBest: true }),
    ),
  )
  expect(all).toEqual(Array(3).fill('step-6.safetensors'))
  expect(requests).toEqual([
    'GET checkpoints.json',
    'PUT step-6.safetensors',
    'PUT checkpoints.json',
  ])
  expect((await readdir(disk)).sort()).toEqual(['checkpoints.json', 'step-6.safetensors'])

  const stale = launcherFolder({ CHECKPOINT_URL: process.env.CHECKPOINT_URL })
  vi.stubEnv('CHECKPOINT_URL', origin + checkpoints.offer())
  requests.length = 0
  const resumed = await Promise.all(
    groups.map((processGroup) => loadCheckpoint({}, { processGroup, folder: launcherFolder() })),
  )
  expect(resumed).toEqual(Array(3).fill({ step: 6, bestLoss: 0.5 }))
  expect(requests).toEqual(['GET checkpoints.json', 'GET step-6.safetensors'])
  // A tab of the first start has no way to this one's files.
  await expect(stale.write('checkpoints.json', new Blob(['{}']))).rejects.toMatchObject({
    code: 'file.unwritable',
  })
  for (const group of groups) group.destroy()
})

test('asked for by name where the launcher has none: the same error on all ranks', async () => {
  const groups = await ringOf(2)
  const saved = await Promise.allSettled(
    groups.map((processGroup) =>
      saveCheckpoint({ step: 1 }, { processGroup, folder: launcherFolder() }),
    ),
  )
  for (const one of saved) {
    expect(one).toMatchObject({
      reason: {
        code: 'config.invalid',
        message: expect.stringContaining('the launcher provides no folder'),
      },
    })
  }
  for (const group of groups) group.destroy()
})

test('a group whose first rank is on another machine is refused, and writes nowhere else', async () => {
  vi.stubEnv('CHECKPOINT_URL', '')
  const groups = await ringOf(2)
  const saved = await Promise.allSettled(
    groups.map((processGroup) => saveCheckpoint({ step: 1 }, { processGroup })),
  )
  for (const one of saved)
    expect(one).toMatchObject({
      reason: {
        code: 'file.unwritable',
        message: expect.stringContaining('rank 0 of the group is not on machine 0'),
      },
    })
  for (const group of groups) group.destroy()
})

test('a folder that cannot be made is quoted as it was typed', async () => {
  await expect(new CheckpointFolder('/dev/null/x').prove()).rejects.toMatchObject({
    code: 'file.unwritable',
    message: expect.stringContaining('--checkpoint-dir: cannot write to /dev/null/x'),
  })
})
