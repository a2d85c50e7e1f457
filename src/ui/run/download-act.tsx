import type { Acts } from '../state/acts.ts'
import type { Run } from '../state/run.ts'

interface DownloadActProps {
  run: Run
  acts: Acts
  words?: string
}

/** Saves the model of a run that has finished. */
export const DownloadAct = ({ run, acts, words = 'Download the model' }: DownloadActProps) => (
  <button type="button" onClick={acts.download} disabled={run.download.is === 'busy'}>
    {run.download.is === 'busy' ? 'Reading the GPU…' : words}
  </button>
)

/** What came of it. */
export const DownloadNote = ({ run: { download } }: { run: Run }) => (
  <span role="status" class="quiet">
    {download.is === 'done' && 'Saved. PyTorch loads it with safetensors.torch.load_file.'}
    {download.is === 'failed' && `The weights could not be read: ${download.text}`}
  </span>
)
