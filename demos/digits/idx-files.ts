import { type IdxFiles, type IdxName, idxNames, packIdx } from './idx-pack.ts'
import { maxGivenBytes } from './meta.ts'

/** One of the files that a person gives, proved to be images or labels. */
export interface IdxFile {
  /** As the person's file is called. */
  readonly name: string
  readonly kind: 'images' | 'labels'
  readonly count: number
  /** Whether it is for training or held out, as its name says; null where that says nothing. */
  readonly split: 'train' | 't10k' | null
  /** The file with gzip. */
  readonly bytes: Uint8Array<ArrayBuffer>
}

/** The files by kind, and those whose kind is not known yet. */
export interface IdxSet {
  readonly files: Readonly<Record<IdxName, IdxFile | null>>
  readonly unplaced: readonly IdxFile[]
}

export const noFiles: IdxSet = {
  files: Object.fromEntries(idxNames.map((name) => [name, null])) as IdxSet['files'],
  unplaced: [],
}

/**
 * Returns the set with these files in it, in place of those that it had.
 *
 * If names do not decide, the larger of two files of one kind is for training, and one alone takes the free place.
 */
export function withFiles({ files, unplaced }: IdxSet, added: readonly IdxFile[]): IdxSet {
  const next = { ...files }
  const left: IdxFile[] = []
  for (const kind of ['images', 'labels'] as const) {
    const own = [...unplaced, ...added].filter((file) => file.kind === kind)
    for (const file of own) if (file.split) next[nameOf(file.split, kind)] = file
    const nameless = own.filter(({ split }) => !split)
    const free = (['train', 't10k'] as const).filter((split) => !next[nameOf(split, kind)])
    const [first, second] = nameless.slice(-2).sort((a, b) => b.count - a.count)
    if (nameless.length > 1 && first.count > second.count) {
      next[nameOf('train', kind)] = first
      next[nameOf('t10k', kind)] = second
    } else if (nameless.length === 1 && free.length === 1) {
      next[nameOf(free[0], kind)] = first
    } else left.push(...nameless.slice(-2))
  }
  return { files: next, unplaced: left }
}

/** What keeps a set from being trained on; one line each, empty where nothing does. */
export function problemsOf({ files, unplaced }: IdxSet): string[] {
  const pairs = (['train', 't10k'] as const).flatMap((split) => {
    const images = files[nameOf(split, 'images')]
    const labels = files[nameOf(split, 'labels')]
    if (!images || !labels || images.count === labels.count) return []
    return [
      `${labels.name}: expected ${images.count} labels for the ${images.count} images of ${images.name}, got ${labels.count}. Choose the two files of one data set.`,
    ]
  })
  const open = unplaced.map(
    ({ name, kind, count }) =>
      `${name}: cannot tell whether its ${count} ${kind} are for training or held out. Put train or t10k into its name, or add another file of ${kind} with more or fewer.`,
  )
  const bytes = idxNames.reduce((sum, name) => sum + (files[name]?.bytes.length ?? 0), 0)
  const size =
    bytes > maxGivenBytes
      ? [
          `The files: they have ${bytes} bytes with gzip, more than ${maxGivenBytes}. Serve them from a folder and enter its address.`,
        ]
      : []
  return [...pairs, ...open, ...size]
}

/** Returns the four files as a run takes them; null while one is missing, or there are problems. */
export function givenOf(set: IdxSet): Uint8Array<ArrayBuffer> | null {
  const all = idxNames.map((name) => [name, set.files[name]?.bytes] as const)
  if (all.some(([, bytes]) => !bytes) || problemsOf(set).length > 0) return null
  return packIdx(Object.fromEntries(all) as unknown as IdxFiles)
}

const nameOf = (split: 'train' | 't10k', kind: IdxFile['kind']): IdxName =>
  `${split}-${kind}-idx${kind === 'images' ? 3 : 1}-ubyte` as IdxName
