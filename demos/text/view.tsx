import { useEffect, useState } from 'preact/hooks'
import { givenData } from '../../src/trainer/settings/config.ts'
import { Expected } from '../../src/ui/demo/expected.tsx'
import { useQuery } from '../../src/ui/demo/use-query.ts'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { WhoseModel } from '../../src/ui/demo/whose-model.tsx'
import { AttentionMaps, type Maps } from './maps.tsx'
import { meta } from './meta.ts'
import { NextCharacter } from './next-character.tsx'
import { OwnText } from './own-text.tsx'
import { beginsUntrained, Samples, untrained, useFirstLine } from './samples.tsx'
import { unknownIn } from './tokens.ts'
import { useSamples } from './use-samples.tsx'
import './view.css'

/** Looks share the gaps between steps with the text that is being written. */
const everyMs = 1000

/** What the model writes as it learns, what it thinks comes next, and where it looks. */
export function TextView(props: ViewProps) {
  const { run, config, canSet, give } = props
  const isOwnText = config?.data === givenData
  return (
    <div class="demo text-demo">
      <WhoseModel run={run} />
      {props.part?.passages && <PartPassages part={props.part} />}
      {run ? (
        <Learning key={run.id} {...props} />
      ) : (
        <>
          <p>
            {canSet && 'Press Start. '}At first the model knows nothing and writes noise; soon it
            writes spaces, then words, then lines of the story.
          </p>
          <Samples lines={[]} first={beginsUntrained(props) ? untrained : null} />
        </>
      )}
      <OwnText canSet={canSet} isGiven={isOwnText} give={give} />
      <Expected demo="text" meta={meta} run={run} />
    </div>
  )
}

/** The first passages of this rank's part of a step. */
const PartPassages = ({ part }: { part: NonNullable<ViewProps['part']> }) => (
  <ul class="part-passages mono" aria-label="Some passages of your part">
    {(part.passages as readonly string[]).map((passage, i) => (
      <li key={i} class="glows">
        {passage.replaceAll('\n', '↵')}
      </li>
    ))}
  </ul>
)

function Learning(props: ViewProps) {
  const { run } = props
  const [typed, setTyped] = useState<string | null>(null)
  const [temperature, setTemperature] = useState(0.6)
  const about = useQuery(props, 'vocabulary', null, { step: 'once' })
  const symbols = (about.answer?.symbols as readonly string[] | undefined) ?? null
  const prompt = typed ?? (about.answer ? String(about.answer.opening) : '')
  const unknown = symbols ? unknownIn(prompt, symbols) : []
  const isAskable = symbols !== null && prompt !== '' && unknown.length === 0
  // The last prompt that can be asked about stays on show while a person corrects it.
  const [asked, setAsked] = useState<string | null>(null)
  useEffect(() => {
    if (isAskable) setAsked(prompt)
  }, [isAskable, prompt])
  const samples = useSamples(props, asked, temperature)
  const first = useFirstLine(props, about.answer)
  const trouble = samples.failure ?? about.failure
  return (
    <>
      <div class="prompt">
        <label>
          <span class="prompt-label">Prompt</span>
          <input
            type="text"
            autoComplete="off"
            value={prompt}
            aria-invalid={symbols !== null && !isAskable}
            aria-describedby="prompt-note"
            onInput={(event) => setTyped(event.currentTarget.value)}
          />
        </label>
        <label>
          <span class="prompt-label">Temperature {temperature.toFixed(1)}</span>
          <input
            type="range"
            min="0"
            max="1.5"
            step="0.1"
            value={temperature}
            onInput={(event) => setTemperature(Number(event.currentTarget.value))}
          />
        </label>
        <button type="button" onClick={samples.again} disabled={run?.end == null}>
          Write another
        </button>
      </div>
      <p id="prompt-note" class={unknown.length > 0 ? 'error' : 'quiet'} role="status">
        {unknown.length > 0
          ? `The text has no ${unknown.map((one) => `"${one}"`).join(' ')}, so the model does not know it.`
          : prompt === '' && symbols
            ? 'Type at least one character.'
            : 'The model continues the prompt. Temperature 0 always takes the likeliest character; above 1 it gets wilder.'}
      </p>
      <Samples lines={samples.lines} first={first} />
      {trouble !== null && <p role="alert">{trouble}</p>}
      {asked !== null && (
        <Looking {...props} prompt={asked} onChoose={(character) => setTyped(prompt + character)} />
      )}
    </>
  )
}

function Looking({
  prompt,
  onChoose,
  ...props
}: ViewProps & { prompt: string; onChoose: (character: string) => void }) {
  const next = useQuery(props, 'probabilities', { prompt }, { everyMs })
  const maps = useQuery(props, 'attention', { prompt }, { everyMs })
  const failure = next.failure ?? maps.failure
  return (
    <div class="looking">
      <section>
        <h3>Next character</h3>
        <p class="quiet">Press a character to add it to the prompt.</p>
        {next.answer && (
          <NextCharacter
            prompt={prompt}
            characters={next.answer.characters as readonly string[]}
            probabilities={next.answer.probabilities as Float32Array}
            onChoose={onChoose}
          />
        )}
      </section>
      <section>
        <h3>Attention</h3>
        <p class="quiet">
          One map for each head, one row for each layer. Each row of a map is a character of the
          prompt and shows which earlier characters it attends to. The model sees the last 32
          characters, numbered from 1.
        </p>
        {maps.answer && <AttentionMaps maps={maps.answer as unknown as Maps} />}
      </section>
      {failure !== null && <p role="alert">{failure}</p>}
    </div>
  )
}
