import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { repository } from '../../tests/support/repository.ts'
import { allowed } from '../layers.ts'

/** Rooms whose README says what they may import: the folders of src that have files. */
export const roomReadmes: readonly string[] = readdirSync(join(repository, 'src'), {
  recursive: true,
  encoding: 'utf8',
})
  .map((path) => `src/${path.replaceAll('\\', '/')}`)
  .filter((path) => path.endsWith('/README.md'))

/** The layer of a room: that which names it, else that of the folder that it lies in. */
const layerOf = (room: string): string =>
  room in allowed ? room : room.slice(0, room.lastIndexOf('/'))

/** The line of a room's README that says what it may import. */
export const importsLine = (room: string): string => {
  const names = (allowed[layerOf(room)] ?? []).map((name) => `\`${name.replace(/^src\//, '')}\``)
  return `May import: ${names.join(', ') || 'nothing'}.`
}

/** A README with its room's line, where it has one. */
export const pageWithImports = (path: string): string =>
  readFileSync(join(repository, path), 'utf8').replace(/^May import: .*$/m, () =>
    importsLine(path.replace(/\/README\.md$/, '')),
  )
