import * as v from 'valibot'
import {
  entryOf,
  getCheckpoint,
  privateCheckpoints,
  putCheckpoint,
  readManifest,
  removeCheckpoint,
} from '../data/checkpoint-folder.ts'
import { type FileFolder, hasPrivateFiles } from '../data/file-store.ts'
import { httpFolder } from '../data/http-folder.ts'
import { privateCheckpointFolders } from '../data/private-checkpoints.ts'
import { DataError } from '../util/errors.ts'
import { unpackCheckpoint } from './checkpoint-file.ts'
import { type TrainConfig, trainConfigSchema } from './config.ts'

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
}

/** A checkpoint with the settings of the run that saved it. */
export interface CheckpointSettings {
  readonly name: string
  readonly step: number
  readonly config: TrainConfig
}

const prefix = 'page-'

/** The folder that a run's checkpoints are in. */
export const shelfOf = ({ demo, model }: Pick<TrainConfig, 'demo' | 'model'>): string =>
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
      const manifest = await readManifest(await privateCheckpoints(place))
      if (!manifest) return []
      const latest = entryOf(manifest, 'latest')
      return manifest.files.map(({ name, label, sizeBytes }) => ({
        place,
        name,
        step: Number(/\d+$/.exec(label)?.[0] ?? Number.NaN),
        sizeBytes,
        isBest: name === manifest.best,
        isLatest: name === latest?.name,
      }))
    }),
  )
  return lists.flatMap((list) => list.reverse())
}

/** A file of the list as it was saved. errors: those of `getCheckpoint`. */
export async function takeFromShelf(place: string, name: string): Promise<Uint8Array<ArrayBuffer>> {
  const file = await getCheckpoint(await privateCheckpoints(place), name)
  if (file) return file
  throw new DataError('data.missing', `checkpoint: expected "${name}", got none. Look again.`)
}

/** The settings of the run that saved a file of the list. errors: those of `getCheckpoint`, `data.malformed`. */
export const settingsOnShelf = async (
  place: string,
  name: string,
): Promise<CheckpointSettings> => ({
  ...(await settingsOf(await takeFromShelf(place, name))),
  name,
})

/** Puts a file that a person has among the others, which all stay. errors: `data.malformed` for a file that is no run's checkpoint. */
export async function addToShelf(file: Uint8Array<ArrayBuffer>): Promise<CheckpointSettings> {
  const { step, config } = await settingsOf(file)
  const folder = await privateCheckpoints(shelfOf(config))
  const kept = (await readManifest(folder))?.files.length ?? 0
  const { name } = await putCheckpoint(folder, file, {
    label: `upload-step-${step}`,
    isBest: false,
    keepLast: kept + 1,
  })
  return { name, step, config }
}

export async function removeFromShelf(place: string, name: string): Promise<void> {
  await removeCheckpoint(await privateCheckpoints(place), name)
}

async function settingsOf(
  file: Uint8Array<ArrayBuffer>,
): Promise<Pick<CheckpointSettings, 'step' | 'config'>> {
  const { step, record } = await unpackCheckpoint(file, {}, { strict: false })
  const { config } = (record ?? {}) as { config?: unknown }
  const checked = v.safeParse(trainConfigSchema, config)
  if (typeof step === 'number' && checked.success) return { step, config: checked.output }
  throw new DataError(
    'data.malformed',
    "checkpoint: expected one of this page's own runs, got a checkpoint of another program. Give a file that was downloaded here.",
  )
}
