import { useRef, useState } from 'preact/hooks'
import { givenData } from '../../src/trainer/settings/config.ts'
import { Choices } from '../../src/ui/demo/choices.tsx'
import { keptInTab } from '../../src/ui/demo/kept.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { formatBytes, formatCount } from '../../src/ui/parts/format.ts'
import { messageOf } from '../../src/util/errors.ts'
import { loadPart } from '../../src/util/load-part.ts'
import { givenOf, type IdxFile, type IdxSet, noFiles, problemsOf, withFiles } from './idx-files.ts'
import { type IdxName, idxNames } from './idx-pack.ts'
import { meta } from './meta.ts'

interface Own {
  readonly set: IdxSet
  /** Files of the last drop that belong to none of the four kinds: one line each. */
  readonly failures: readonly string[]
  /** The four are there, and are one data set. */
  readonly isWhole: boolean
}

const none: Own = { set: noFiles, failures: [], isWhole: false }

const kept = keptInTab(none)

/** The four files that a person drops or chooses, some or all at once: `take` them. */
export function useOwnFiles({ canSet, give }: Pick<ViewProps, 'canSet' | 'give'>) {
  const [own, setOwn] = useState(kept.value)
  const [reading, setReading] = useState(0)
  // Files that come while others are read wait for these.
  const queue = useRef(Promise.resolve())
  const keep = (next: Own) => {
    kept.value = next
    setOwn(next)
  }
  const read = async (files: readonly File[]) => {
    const added: IdxFile[] = []
    const failures: string[] = []
    for (const file of files) {
      try {
        const { readIdxFile } = await loadPart(
          'the reader of IDX files',
          () => import('./read-idx-file.ts'),
        )
        added.push(await readIdxFile(file))
      } catch (error) {
        const words = messageOf(error)
        failures.push(words.startsWith(file.name) ? words : `${file.name}: ${words}`)
      }
    }
    const wasWhole = kept.value.isWhole
    const set = withFiles(kept.value.set, added)
    const given = givenOf(set)
    keep({ set, failures, isWhole: given !== null })
    if (given && added.length > 0) give(given, null, set.files['train-images-idx3-ubyte']?.count)
    // A file that took another one's place may not fit the rest: what is shown is what a run would get.
    else if (!given && wasWhole) give(null)
  }
  return {
    ...own,
    isReading: reading > 0,
    take(files: Iterable<File> | null | undefined) {
      const list = [...(files ?? [])]
      if (list.length === 0) return
      if (!canSet) {
        keep({
          ...kept.value,
          failures: ['Only the host can add files, and not during a run.'],
        })
        return
      }
      setReading((count) => count + 1)
      queue.current = queue.current
        .then(() => read(list))
        .finally(() => setReading((count) => count - 1))
    },
    clear() {
      keep(none)
      give(null)
    },
  }
}

const placeWords: Record<IdxName, string> = {
  'train-images-idx3-ubyte': 'training images',
  'train-labels-idx1-ubyte': 'their labels',
  't10k-images-idx3-ubyte': 'held-out images',
  't10k-labels-idx1-ubyte': 'their labels',
}

interface OwnFilesProps extends Pick<ViewProps, 'config' | 'canSet' | 'set'> {
  own: ReturnType<typeof useOwnFiles>
}

/** Which digits the model learns: those drawn by the program, four files, or the files in a folder with an address. */
export function OwnFiles({ own, config, canSet, set }: OwnFilesProps) {
  const { set: idx, failures, isWhole, isReading, take, clear } = own
  const data = config?.data
  const isAddress = data !== undefined && data !== givenData && !Object.hasOwn(meta.data, data)
  const [address, setAddress] = useState(isAddress ? data : '')
  const problems = [...failures, ...problemsOf(idx)]
  const hasFiles = idxNames.some((name) => idx.files[name]) || idx.unplaced.length > 0
  return (
    <div class="own-files">
      <Choices
        label="Digits"
        value={isAddress ? 'address' : data}
        isFixed={!canSet}
        choices={[
          ...Object.entries(meta.data).map(([value, words]) => ({ value, words })),
          ...(isWhole ? [{ value: givenData, words: 'the four files' }] : []),
          ...(isAddress ? [{ value: 'address', words: data }] : []),
        ]}
        onChoose={(value) => {
          if (value !== 'address') set('data', value)
        }}
      />
      <details
        open={hasFiles || problems.length > 0 || isAddress || data === givenData || undefined}
      >
        <summary>Train on MNIST, or files in its format</summary>
        <div class="own-body">
          <div>
            <input
              type="file"
              id="own-files"
              class="unseen"
              multiple
              disabled={!canSet}
              onChange={(event) => {
                const { currentTarget } = event
                take(currentTarget.files)
                // The same files may be chosen again.
                currentTarget.value = ''
              }}
            />
            <label class="button" for="own-files" data-disabled={!canSet}>
              Choose the four files…
            </label>
            <span class="quiet">
              {' '}
              or drop them here (IDX, plain or gzip). They stay in this room.
            </span>
          </div>
          {hasFiles && (
            <ul class="idx-files">
              {idxNames.map((name) => (
                <Place key={name} words={placeWords[name]} file={idx.files[name]} />
              ))}
            </ul>
          )}
          <p class="quiet" role="status">
            {isReading ? 'Reading…' : canSet && data === givenData ? nextRun(own) : ''}
          </p>
          {problems.length > 0 && (
            <ul class="problems" role="alert">
              {problems.map((words) => (
                <li key={words} class="error">
                  {words}
                </li>
              ))}
            </ul>
          )}
          {hasFiles && canSet && (
            <button
              type="button"
              onClick={() => {
                clear()
                if (data === givenData) set('data', Object.keys(meta.data)[0])
              }}
            >
              Remove the files
            </button>
          )}
          <form
            class="own-address"
            onSubmit={(event) => {
              event.preventDefault()
              if (address.trim() !== '') set('data', address.trim())
            }}
          >
            <label for="own-address">Or the address of a folder with these files</label>
            <input
              type="text"
              id="own-address"
              inputMode="url"
              autoComplete="off"
              placeholder="https://…/mnist/"
              value={address}
              disabled={!canSet}
              onInput={(event) => setAddress(event.currentTarget.value)}
            />
            <button type="submit" disabled={!canSet || address.trim() === ''}>
              Use this folder
            </button>
            <p class="quiet">
              Each tab downloads them. Another server must allow this page (CORS).{' '}
              <code>npm start -- --data DIR</code> serves a folder at <code>/data/</code>.
            </p>
          </form>
        </div>
      </details>
    </div>
  )
}

/** What a run would train on now. A reloaded tab has its settings again, but no files. */
const nextRun = ({ set, isWhole }: Own): string =>
  isWhole
    ? `The next run trains on ${counted(set, 'train-images-idx3-ubyte')} images, and ${counted(set, 't10k-images-idx3-ubyte')} are held out. Press Start.`
    : 'The settings ask for your own files, and this tab does not have all four. Add them, or choose other digits.'

const counted = ({ files }: IdxSet, name: IdxName) => formatCount(files[name]?.count ?? 0)

function Place({ words, file }: { words: string; file: IdxFile | null }) {
  return (
    <li data-is={file ? 'there' : 'missing'}>
      <span aria-hidden="true">{file ? '✓' : '○'}</span> {words}:{' '}
      {file ? (
        <>
          <b>{file.name}</b>{' '}
          <span class="quiet">
            {formatCount(file.count)}, {formatBytes(file.bytes.length)} with gzip
          </span>
        </>
      ) : (
        <span class="quiet">missing</span>
      )}
    </li>
  )
}
