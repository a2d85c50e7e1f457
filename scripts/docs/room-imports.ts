import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { repository } from '../../tests/support/repository.ts'
import { allowed } from '../layers.ts'

/** Rooms whose README says what they may import: the folders of src and node that have files. */
export const roomReadmes: readonly string[] = ['src', 'node'].flatMap((folder) =>
  readdirSync(join(repository, folder), { recursive: true, encoding: 'utf8' })
    .map((path) => `${folder}/${path.replaceAll('\\', '/')}`)
    .filter((path) => path.endsWith('/README.md')),
)

/** The layer of a room: that which names it, else that of the folder that it lies in. */
const layerOf = (room: string): string =>
  room in allowed || !room.includes('/') ? room : layerOf(room.slice(0, room.lastIndexOf('/')))

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
