import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Files, gzip, idxFile, smallFolder } from '../../../support/idx-files.ts'
import { startTrain } from '../../../support/program-process.ts'

/** `npm run train` as a real process, on input that it must refuse before it starts a browser. */

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
})
afterEach(() => rm(folder, { recursive: true }))

interface Ended {
  code: number | null
  stdout: string
  stderr: string
}

function runTrain(...argv: string[]): Promise<Ended> {
  return runTrainIn({}, ...argv)
}

async function runTrainIn(environment: NodeJS.ProcessEnv, ...argv: string[]): Promise<Ended> {
  const { received, ended } = startTrain(argv, environment)
  return { code: await ended, ...received }
}

async function writeFolder(files: Files): Promise<string> {
  const data = join(folder, 'data')
  await mkdir(data)
  for (const [name, bytes] of Object.entries(files)) await writeFile(join(data, name), bytes)
  return data
}

function expectOneLine(ended: Ended, text: string): void {
  expect(ended.stderr).toContain(text)
  expect(ended.stderr).toMatch(/^train: [^\n]+\n$/)
  expect(ended.stdout).toBe('')
  expect(ended.code).toBe(1)
}

const wholeGzip = gzip(smallFolder()['train-images-idx3-ubyte'])

test.each<[string, Files, string]>([
  [
    'a truncated gzip file',
    { 'train-images-idx3-ubyte.gz': wholeGzip.slice(0, -20) },
    'train-images-idx3-ubyte.gz: the gzip stream is truncated or damaged',
  ],
  [
    'other counts of images and labels',
    { 'train-labels-idx1-ubyte': idxFile([7]) },
    'expected 12 labels for the 12 images of train-images-idx3-ubyte, got 7',
  ],
  [
    'a file that is no IDX',
    { 'test-images-idx3-ubyte': new TextEncoder().encode('<!doctype html>') },
    'expected the IDX magic number',
  ],
  [
    'truncated images',
    { 'test-images-idx3-ubyte': idxFile([5, 28, 28]).slice(0, 900) },
    '(truncated)',
  ],
])(
  '--data with %s: one line, nothing written',
  async (_, damage, text) => {
    const files = { ...smallFolder(), ...damage }
    if ('train-images-idx3-ubyte.gz' in damage) delete files['train-images-idx3-ubyte']
    const data = await writeFolder(files)
    expectOneLine(await runTrain('--data', data, '--out', join(folder, 'w.safetensors')), text)
    expect(await readdir(folder)).toEqual(['data'])
  },
  120_000,
)

test('--data that is missing or no folder', async () => {
  expectOneLine(await runTrain('--data', join(folder, 'none')), 'none does not exist')
  await writeFile(join(folder, 'file'), '')
  expectOneLine(await runTrain('--data', join(folder, 'file')), 'file is not a folder')
}, 120_000)

test('--batch-size below the world size', async () => {
  expectOneLine(
    await runTrain('--nproc-per-node', '3', '--batch-size', '2', '--out', join(folder, 'w')),
    '--batch-size: expected 3 or more for 3 ranks, got 2',
  )
  expect(await readdir(folder)).toEqual([])
}, 120_000)

test('--out that cannot be written', async () => {
  expectOneLine(await runTrain('--out', join(folder, 'none', 'w')), 'there is no folder')
  expectOneLine(await runTrain('--out', folder), 'it is a folder')
  expectOneLine(await runTrain('--out', '/dev/null'), 'it is not a regular file')
  // The kernel refuses new files there, to every user.
  if (process.platform === 'linux')
    expectOneLine(await runTrain('--out', '/proc/w.safetensors'), '/proc/w.safetensors: EN')
  expect(await readdir(folder)).toEqual([])
}, 120_000)

test('--resume and --checkpoint-dir that do not fit what is there', async () => {
  const runs = join(folder, 'runs')
  expectOneLine(
    await runTrain('--checkpoint-dir', runs, '--resume', 'latest'),
    'has no checkpoints',
  )
  // The folder was made, and nothing in it.
  expect(await readdir(runs)).toEqual([])
  const sha256 = 'a'.repeat(64)
  const files = [{ name: 'step-1.safetensors', label: 'step-1', sizeBytes: 1, sha256 }]
  const manifest = { version: 1, files, best: null, leftover: [] }
  await writeFile(join(runs, 'checkpoints.json'), JSON.stringify(manifest))
  expectOneLine(
    await runTrain('--checkpoint-dir', runs),
    'already has checkpoints (step-1.safetensors)',
  )
  expectOneLine(
    await runTrain('--checkpoint-dir', runs, '--resume', 'best'),
    'has no best checkpoint',
  )
  await writeFile(join(folder, 'file'), 'text')
  expectOneLine(
    await runTrain('--checkpoint-dir', join(folder, 'file')),
    '--checkpoint-dir: cannot write to',
  )
  expectOneLine(await runTrain('--resume', join(folder, 'file')), 'file: expected')
  expectOneLine(await runTrain('--resume', join(folder, 'none')), 'which does not exist')
}, 120_000)

test('without a browser: one line, an existing --out file stays as it was', async () => {
  await writeFile(join(folder, 'old'), 'kept')
  await symlink(join(folder, 'old'), join(folder, 'w'))
  expectOneLine(
    await runTrainIn({ TABRING_BROWSER: '/nowhere/chrome' }, '--out', join(folder, 'w')),
    'TABRING_BROWSER names /nowhere/chrome, which does not exist',
  )
  expect((await readdir(folder)).sort()).toEqual(['old', 'w'])
  expect(await readFile(join(folder, 'w'), 'utf8')).toBe('kept')
}, 120_000)
