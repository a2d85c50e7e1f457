import { useEffect, useState } from 'preact/hooks'
import { Words } from '../parts/term.tsx'
import './lesson.css'
import { type Lesson, lessonCount } from './lesson.ts'
import { forgetProgress, isDone, keepProgress, type Progress, readProgress } from './progress.ts'

interface LessonPanelProps<Facts> {
  readonly lesson: Lesson<Facts>
  readonly facts: Facts
  /** The site's root, from this page. */
  readonly home: string
  /** Sets the settings of a goal; undefined where this tab has none to set. */
  readonly set?: ((settings: Readonly<Record<string, string>>) => void) | undefined
}

/** A lesson above the page that it is about: the idea and the prediction, then the goals, then what was to be seen. */
export function LessonPanel<Facts>({ lesson, facts, home, set }: LessonPanelProps<Facts>) {
  const { number, title, goals } = lesson
  const [progress, setProgress] = useState(() => readProgress(number))
  const keep = (next: Progress) => setProgress(keepProgress(number, next))
  const { predicted, reached } = progress
  const met =
    predicted === null
      ? []
      : goals.flatMap(({ isReached }, at) =>
          !reached.includes(at) && isReached(facts) ? [at] : [],
        )
  useEffect(() => {
    if (met.length > 0) keep({ ...progress, reached: [...reached, ...met] })
  }, [met.join()])
  const isOver = isDone(progress, goals.length)
  return (
    <section class="lesson" aria-labelledby="lesson-title" data-over={isOver}>
      <header>
        <h2 id="lesson-title">
          Lesson {number}: {title}
        </h2>
        <a href={`${home}class/`} target="_blank" rel="noopener">
          All {lessonCount} lessons
        </a>
      </header>
      {predicted === null ? (
        <Prediction
          lesson={lesson}
          onPredict={(choice) => keep({ predicted: choice, reached: [] })}
        />
      ) : (
        <div class="lesson-parts">
          <Goals goals={goals} reached={reached} set={set} />
          <Answer lesson={lesson} predicted={predicted} isOver={isOver} />
        </div>
      )}
      {predicted !== null && (
        <p class="lesson-acts">
          <button type="button" class="small" onClick={() => setProgress(forgetProgress(number))}>
            Begin the lesson again
          </button>
        </p>
      )}
    </section>
  )
}

interface PredictionProps {
  readonly lesson: Lesson<never>
  readonly onPredict: (choice: number) => void
}

function Prediction({ lesson: { idea, prediction }, onPredict }: PredictionProps) {
  const [choice, setChoice] = useState<number | null>(null)
  return (
    <form
      class="lesson-parts"
      onSubmit={(event) => {
        event.preventDefault()
        if (choice !== null) onPredict(choice)
      }}
    >
      <div>
        {idea.map((words) => (
          <p key={words}>
            <Words text={words} />
          </p>
        ))}
      </div>
      <fieldset>
        <legend>{prediction.question}</legend>
        {prediction.choices.map((words, at) => (
          <label key={words}>
            <input
              type="radio"
              name="prediction"
              checked={choice === at}
              onChange={() => setChoice(at)}
            />
            {words}
          </label>
        ))}
        <button type="submit" class="go" disabled={choice === null}>
          That is my prediction
        </button>
      </fieldset>
    </form>
  )
}

interface GoalsProps<Facts>
  extends Pick<LessonPanelProps<Facts>, 'set'>,
    Pick<Lesson<Facts>, 'goals'>,
    Pick<Progress, 'reached'> {}

function Goals<Facts>({ goals, reached, set }: GoalsProps<Facts>) {
  const next = goals.findIndex((_, at) => !reached.includes(at))
  return (
    <ol class="lesson-goals">
      {goals.map(({ words, settings }, at) => {
        const is = reached.includes(at)
        return (
          <li key={words} data-is={is ? 'reached' : at === next ? 'next' : 'open'}>
            <span class="tick" data-is={is}>
              <span aria-hidden="true">{is ? '✓' : '○'}</span>
              <span class="unseen">{is ? 'reached:' : 'to do:'}</span>
            </span>
            <span>
              <Words text={words} />
              {settings && at === next && set && (
                <button type="button" class="small" onClick={() => set(settings)}>
                  Set it
                </button>
              )}
            </span>
          </li>
        )
      })}
    </ol>
  )
}

interface AnswerProps {
  readonly lesson: Lesson<never>
  readonly predicted: number
  readonly isOver: boolean
}

/** The prediction, and beside it what came, once the goals are reached. */
function Answer({ lesson: { prediction, answer }, predicted, isOver }: AnswerProps) {
  const { question, choices, right } = prediction
  return (
    <div role="status">
      <p class="quiet">{question}</p>
      <p>
        You predicted: <strong>{choices[predicted]}</strong>
        {isOver && (predicted === right ? ' It came true.' : '')}
      </p>
      {isOver && predicted !== right && (
        <p>
          It was: <strong>{choices[right]}</strong>
        </p>
      )}
      {isOver &&
        answer.map((words) => (
          <p key={words}>
            <Words text={words} />
          </p>
        ))}
      {!isOver && <p class="quiet">Reach the goals to see whether it comes true.</p>}
    </div>
  )
}
