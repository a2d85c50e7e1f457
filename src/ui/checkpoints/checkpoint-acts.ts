import type { TrainConfig } from '../../train/config.ts'
import { messageOf } from '../../util/errors.ts'
import type { CheckpointSettings, ComputeApi } from '../../worker/api.ts'
import type { Acts } from '../acts.ts'
import { saveUrl } from '../save-file.ts'
import { type SettingKey, settings } from '../settings.ts'
import type { Store } from '../store.ts'

/** Settings that are not the saved run's: how far to go, and what does not decide its numbers. */
const ownSettings: readonly SettingKey[] = [
  'epochs',
  'steps',
  'bucketCapMb',
  'hashEvery',
  'checkpointEvery',
  'resume',
  'tune',
  'transport',
  'ranks',
]

/** The texts of the form that go on with a saved run. */
export function draftFor({ name, config }: CheckpointSettings): [SettingKey, string][] {
  const saved = settings
    .filter(({ key }) => !ownSettings.includes(key))
    .map(({ key }): [SettingKey, string] => [key, String(config[key as keyof TrainConfig] ?? '')])
  return [...saved, ['resume', name]]
}

/** What people do with the checkpoints of this browser. `set` changes a setting, as the form does. */
export function checkpointActs(
  store: Store,
  compute: ComputeApi,
  set: Acts['set'],
): Pick<Acts, 'goOnFrom' | 'downloadCheckpoint' | 'deleteCheckpoint' | 'uploadCheckpoint'> {
  const note = (text: string, isError = false) =>
    store.dispatch({ type: 'checkpointNote', text, isError })
  const refresh = async () => {
    store.dispatch({ type: 'checkpoints', files: await compute.checkpoints() })
  }
  const attempt = async (work: () => Promise<string>) => {
    try {
      note(await work())
    } catch (thrown) {
      note(messageOf(thrown), true)
    }
  }
  // They change when this tab is in the room, when one was saved, and when a run is over.
  let stage = store.snapshot.stage
  let saved = 0
  let end = store.snapshot.run?.end
  store.onChange((snapshot) => {
    const { run } = snapshot
    const savedNow = run?.checkpoints ?? 0
    if (snapshot.stage === stage && savedNow === saved && run?.end === end) return
    stage = snapshot.stage
    saved = savedNow
    end = run?.end
    if (stage === 'inside') refresh().catch((thrown) => note(messageOf(thrown), true))
  })
  const take = (found: CheckpointSettings) => {
    for (const [key, value] of draftFor(found)) set(key, value)
    return `Start goes on from step ${found.step}, with the settings of that run. Epochs count from its beginning.`
  }
  return {
    goOnFrom: ({ place, name }) =>
      void attempt(async () => take(await compute.checkpointSettings(place, name))),
    downloadCheckpoint: ({ place, name }) =>
      void attempt(async () => {
        saveUrl(await compute.readCheckpoint(place, name), `tabring-${place}-${name}`)
        return `Saved ${name}.`
      }),
    deleteCheckpoint: ({ place, name }) =>
      void attempt(async () => {
        await compute.removeCheckpoint(place, name)
        await refresh()
        return `Deleted ${name}.`
      }),
    uploadCheckpoint: (file) =>
      void attempt(async () => {
        const found = await compute.addCheckpoint(file)
        await refresh()
        return take(found)
      }),
  }
}
