import { useMemo, useRef, useState } from 'preact/hooks'
import { keptInTab } from '../../src/ui/demo/kept.ts'
import { formatCount } from '../../src/ui/parts/format.ts'
import { messageOf } from '../../src/util/errors.ts'
import { meta } from './meta.ts'
import { decodeText, maxSymbols, readText } from './tokens.ts'

interface OwnTextProps {
  canSet: boolean
  isGiven: boolean
  give: (bytes: Uint8Array<ArrayBuffer>, text: null, samples: number) => void
}

interface Judged {
  readonly bytes: Uint8Array<ArrayBuffer> | null
  /** For training. */
  readonly samples: number
  readonly words: string
}

const max = meta.given!.maxBytes

const tooLong = (bytes: number): string =>
  `text: it is too long (${formatCount(bytes)} of at most ${formatCount(max)} bytes). Shorten it.`

function judge(text: string): Judged {
  try {
    const bytes = new TextEncoder().encode(text)
    if (bytes.length > max)
      return {
        bytes: null,
        samples: 0,
        words: tooLong(bytes.length),
      }
    const { symbols, train, test } = readText(text)
    const length = train.tokens.length + test.tokens.length
    const words = `${formatCount(length)} characters, ${symbols.length} of at most ${maxSymbols} different ones; the last ${formatCount(test.tokens.length)} are held out.`
    return { bytes, samples: train.count, words }
  } catch (error) {
    return { bytes: null, samples: 0, words: messageOf(error) }
  }
}

/** What stands in the field, and what of it was taken. */
const kept = keptInTab({ text: '', given: '' })

/** Takes a text: typed, pasted, chosen as a file or dropped. */
export function OwnText({ canSet, isGiven, give }: OwnTextProps) {
  const [{ text, given }, setOwn] = useState(kept.value)
  const keepOwn = (own: Partial<typeof kept.value>) => {
    kept.value = { ...kept.value, ...own }
    setOwn(kept.value)
  }
  const setText = (text: string) => keepOwn({ text })
  const [failure, setFailure] = useState<string | null>(null)
  const judged = useMemo(() => (text === '' ? null : judge(text)), [text])
  const newest = useRef<File | null>(null)
  const take = async (file: File | undefined) => {
    if (!file) return
    newest.current = file
    // Of two files that were chosen one soon after the other, the later one counts, however long each is read.
    const keep = (text: string | null, failure: string | null) => {
      if (newest.current !== file) return
      if (text !== null) setText(text)
      setFailure(failure)
    }
    try {
      if (file.size > max) throw new Error(tooLong(file.size))
      keep(decodeText(new Uint8Array(await file.arrayBuffer())), null)
    } catch (error) {
      keep(null, `${file.name}: ${messageOf(error)}`)
    }
  }
  const isWrong = failure !== null || judged?.bytes === null
  return (
    <details class="own-text">
      <summary>Train on your own text</summary>
      <label class="own-label" for="own-text">
        Paste a text, or drop a file on the field
      </label>
      <textarea
        id="own-text"
        rows={5}
        value={text}
        aria-invalid={isWrong}
        aria-describedby="own-text-note"
        onInput={(event) => {
          newest.current = null
          setText(event.currentTarget.value)
          setFailure(null)
        }}
        onDragOver={(event) => event.preventDefault()}
        onDrop={(event) => {
          const file = event.dataTransfer?.files[0]
          // A dropped piece of text is the field's own business.
          if (!file) return
          event.preventDefault()
          void take(file)
        }}
      />
      <p id="own-text-note" class={isWrong ? 'error' : 'quiet'} role="status">
        {failure ?? judged?.words ?? 'Nothing yet.'}
      </p>
      <div class="own-acts">
        <input
          type="file"
          id="own-text-file"
          class="unseen"
          accept="text/*,.txt,.md"
          onChange={(event) => {
            const input = event.currentTarget
            void take(input.files?.[0])
            // The same file may be chosen again, when it has been changed.
            input.value = ''
          }}
        />
        <label class="button" for="own-text-file">
          Choose a text file…
        </label>
        <button
          type="button"
          disabled={!canSet || !judged?.bytes}
          onClick={() => {
            if (!judged?.bytes) return
            give(judged.bytes, null, judged.samples)
            keepOwn({ given: text })
          }}
        >
          Use this text
        </button>
      </div>
      {!canSet && <p class="quiet">Only the host can choose a text, and not during a run.</p>}
      {canSet && judged?.bytes && given !== text && !isGiven && (
        <p role="status">Not used yet: Start still trains on the data chosen before.</p>
      )}
      {canSet && isGiven && given !== '' && (
        <p role="status">
          The next run learns {given === text ? 'this text' : 'the text chosen before'}. Press
          Start.
        </p>
      )}
    </details>
  )
}
