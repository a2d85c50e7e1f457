import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { importsLine } from '../../../scripts/docs/room-imports.ts'
import { allowed } from '../../../scripts/layers.ts'
import { repository } from '../../support/repository.ts'

const maxLines = 25

const foldersIn = (folder: string): string[] =>
  readdirSync(join(repository, folder), { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => `${folder}/${name}`)

/** Folders that are divided into rooms. */
const divided = ['graph', 'ddp', 'parallel', 'trainer', 'peer', 'distributed', 'worker', 'ui'].map(
  (name) => `src/${name}`,
)
/** Folders whose README describes something else than a room, or that have none. */
const exempt = ['src/kernels/conv2d']

const mustHave = [
  ...foldersIn('src'),
  ...['node', ...foldersIn('node'), ...foldersIn('node/launch')],
  ...divided.filter((folder) => !exempt.includes(folder)).flatMap(foldersIn),
].filter((folder) => !exempt.includes(folder))
const others = foldersIn('src')
  .flatMap((folder) => [folder, ...foldersIn(folder)])
  .filter((folder) => existsSync(join(repository, folder, 'README.md')) && !exempt.includes(folder))
const rooms = [...new Set([...mustHave, ...others])].sort()

test.each(rooms)('%s: the README is short and names what is in the room', (room) => {
  const path = join(repository, room, 'README.md')
  expect(existsSync(path), `${room} has no README.md`).toBe(true)
  const text = readFileSync(path, 'utf8')
  expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(maxLines)

  const entries = readdirSync(join(repository, room), { withFileTypes: true })
  const files = entries.filter(({ name }) => /\.tsx?$/.test(name)).map(({ name }) => name)
  const named = [...text.matchAll(/`([\w.-]+\.tsx?)`/g)].map(([, name]) => name)
  expect([...new Set(named)].sort()).toEqual(files.sort())

  // Op folders are listed in docs/reference/ops.md.
  if (room === 'src/kernels') return
  const inner = entries.filter((entry) => entry.isDirectory()).map(({ name }) => `${name}/`)
  const namedInner = [...text.matchAll(/^- .*$/gm)].flatMap(([line]) =>
    [...line.matchAll(/`([\w-]+\/)`/g)].map(([, name]) => name),
  )
  expect([...new Set(namedInner)].sort()).toEqual(inner.sort())
})

const hasFiles = (room: string) =>
  readdirSync(join(repository, room)).some((name) => /\.(?:tsx?|css)$/.test(name))

test.each(rooms)('%s: the README says what it may import', (room) => {
  const text = readFileSync(join(repository, room, 'README.md'), 'utf8')
  if (!hasFiles(room) || (divided.includes(room) && !(room in allowed))) {
    expect(text).toContain("\nEach room's README says what it may import.\n")
    return
  }
  expect(text).toContain(`\n${importsLine(room)}\n`)
})
