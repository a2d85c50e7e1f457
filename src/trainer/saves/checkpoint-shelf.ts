import * as v from 'valibot'
import {
  entryOf,
  getCheckpoint,
  privateCheckpoints,
  putCheckpoint,
  readManifest,
  removeCheckpoint,
  underLock,
} from '../../data/checkpoint-folder.ts'
import { type FileFolder, hasPrivateFiles } from '../../data/file-store.ts'
import { httpFolder } from '../../data/http-folder.ts'
import { privateCheckpointFolders } from '../../data/private-checkpoints.ts'
import { readSafetensors } from '../../data/safetensors.ts'
import { unpackCheckpoint } from '../../ddp/checkpoint/checkpoint-file.ts'
import { clipped } from '../../util/clipped.ts'
import { DataError } from '../../util/errors.ts'
import { aboutOf } from '../settings/about-run.ts'
import { type TrainConfig, trainConfigSchema } from '../settings/config.ts'

/** The checkpoints of the built-in training in this browser's private files, for the page's list of them. */

/** One of them. */
export interface ShelvedCheckpoint {
  /** The folder that it is in. */
  readonly place: string
  readonly name: string
  readonly step: number
  readonly sizeBytes: number
  readonly isBest: boolean
  readonly isLatest: boolean
  /** A person saved it or brought it: it stays until one deletes it. */
  readonly isKept: boolean
  /** units: ms of Unix time; null for files of earlier versions. */
  readonly savedAtMs: number | null
  /** Words that distinguish its run from others of the demo and model, as `moons, seed 1`; empty for files of earlier versions. */
  readonly about: string
  /** Of its run's last test by then (`scoreOf`); null where there was none. */
  readonly score: number | null
}

/** A checkpoint with the settings of the run that saved it. */
export interface CheckpointSettings {
  readonly name: string
  readonly step: number
  readonly config: TrainConfig
  /** Training samples that the run had. */
  readonly samples: number
}

const prefix = 'page-'

/** The folder that a run's checkpoints are in. */
const shelfOf = ({ demo, model }: Pick<TrainConfig, 'demo' | 'model'>): string =>
  `${prefix}${demo}-${model}`

/** Where a run's checkpoints are: at the address, where there is one, else on this shelf. */
export const folderOf = async (config: TrainConfig, address?: URL): Promise<FileFolder> =>
  address ? httpFolder(address) : privateCheckpoints(shelfOf(config))

/** All of them, the latest of each folder first; empty where this browser keeps none. */
export async function listShelf(): Promise<ShelvedCheckpoint[]> {
  if (!hasPrivateFiles()) return []
  const places = (await privateCheckpointFolders()).filter((name) => name.startsWith(prefix))
  const lists = await Promise.all(
    places.sort().map(async (place) => {
      const folder = await privateCheckpoints(place)
      // Another tab may be writing: what is read is then as before it, or behind it.
      const manifest = await underLock(folder, () => readManifest(folder))
      if (!manifest) return []
      const latest = entryOf(manifest, 'latest')
      return manifest.files.map(
        ({ name, label, sizeBytes, isKept = false, savedAtMs = null, about = '', score }) => ({
          place,
          name,
          step: Number(/\d+$/.exec(label)?.[0] ?? Number.NaN),
          sizeBytes,
          isBest: name === manifest.best,
          isLatest: name === latest?.name,
          isKept,
          savedAtMs,
          about,
          score: score?.value ?? null,
        }),
      )
    }),
  )
  return lists.flatMap((list) => list.reverse())
}

/** A file of the list as it was saved. errors: those of `getCheckpoint`. */
export async function takeFromShelf(place: string, name: string): Promise<Uint8Array<ArrayBuffer>> {
  const folder = await privateCheckpoints(place)
  const file = await underLock(folder, () => getCheckpoint(folder, name))
  if (file) return file
  throw new DataError(
    'data.missing',
    `checkpoint: "${clipped(name)}" does not exist. Choose another one.`,
  )
}

/** The settings of the run that saved a file of the list. errors: those of `getCheckpoint`, `data.malformed`. */
export const settingsOnShelf = async (
  place: string,
  name: string,
): Promise<CheckpointSettings> => ({
  ...(await settingsOf(await takeFromShelf(place, name))),
  name,
})

/** Contents of a file that is no checkpoint of a run: the weights of a model alone, or something else. */
export type NotARun = 'weights' | 'other'

/** Puts a file that a person has among the others, which all stay; what it holds, where it is no run's checkpoint. */
export async function addToShelf(
  file: Uint8Array<ArrayBuffer>,
): Promise<CheckpointSettings | NotARun> {
  let found: Awaited<ReturnType<typeof settingsOf>>
  try {
    found = await settingsOf(file)
  } catch (thrown) {
    if (thrown instanceof DataError && thrown.code === 'data.malformed') {
      return isSafetensors(file) ? 'weights' : 'other'
    }
    throw thrown
  }
  const { step, config } = found
  const folder = await privateCheckpoints(shelfOf(config))
  const { name } = await putCheckpoint(folder, file, {
    label: `upload-step-${step}`,
    isBest: false,
    keepLast: 1,
    run: `upload-${Date.now()}`,
    isKept: true,
    savedAtMs: Date.now(),
    about: aboutOf(config),
  })
  return { ...found, name }
}

/** Tells whether it is a file of that kind at all, with a tree of states or without. */
function isSafetensors(file: Uint8Array): boolean {
  try {
    return !('tabring' in readSafetensors(file, 'file').metadata)
  } catch {
    return false
  }
}

export async function removeFromShelf(place: string, name: string): Promise<void> {
  await removeCheckpoint(await privateCheckpoints(place), name)
}

async function settingsOf(
  file: Uint8Array<ArrayBuffer>,
): Promise<Omit<CheckpointSettings, 'name'>> {
  const { step, record, cursor } = await unpackCheckpoint(file, {}, { strict: false })
  const { config } = (record ?? {}) as { config?: unknown }
  const { samples } = (cursor ?? {}) as { samples?: unknown }
  const checked = v.safeParse(trainConfigSchema, config)
  if (typeof step === 'number' && typeof samples === 'number' && checked.success)
    return { step, config: checked.output, samples }
  throw new DataError(
    'data.malformed',
    'checkpoint: this file is a checkpoint of another program. Choose a file that was downloaded from this page.',
  )
}
