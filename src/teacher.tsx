import { render } from 'preact'
import './ui/theme/theme.css'
import './ui/theme/class.css'
import { course } from '../demos/lessons/course.ts'
import { lessonAddress } from './ui/lesson/lesson.ts'
import { PageFoot } from './ui/parts/page-foot.tsx'
import { PageTop } from './ui/parts/page-top.tsx'
import { Words } from './ui/parts/term.tsx'

/** The teacher's page: what each lesson needs, and its answers. */

const home = '../../'

function Guide({ lesson }: { lesson: (typeof course)[number] }) {
  const { number, title, about, idea, prediction, goals, answer, forTeacher } = lesson
  const { prepare, mistake, questions } = forTeacher
  return (
    <article class="panel guide" id={`lesson-${number}`}>
      <h2>
        Lesson {number}: {title}
      </h2>
      <p class="lead">{about}</p>
      <dl>
        <dt>Prepare</dt>
        <dd>
          {prepare} <a href={home + lessonAddress(lesson)}>Open the lesson</a>
        </dd>
        <dt>Read, 2 minutes</dt>
        <dd>
          {idea.map((words) => (
            <p key={words}>
              <Words text={words} />
            </p>
          ))}
        </dd>
        <dt>Predict, 1 minute</dt>
        <dd>
          {prediction.question}
          <ul>
            {prediction.choices.map((words, at) => (
              <li key={words} data-right={at === prediction.right}>
                {words}
                {at === prediction.right && <strong> Comes true.</strong>}
              </li>
            ))}
          </ul>
        </dd>
        <dt>Try, 4 minutes</dt>
        <dd>
          <ol>
            {goals.map(({ words }) => (
              <li key={words}>
                <Words text={words} />
              </li>
            ))}
          </ol>
        </dd>
        <dt>Why, 3 minutes</dt>
        <dd>
          {answer.map((words) => (
            <p key={words}>
              <Words text={words} />
            </p>
          ))}
          <p>
            <strong>What pupils often think:</strong> {mistake}
          </p>
        </dd>
        <dt>To ask</dt>
        <dd>
          {questions.map(([question, reply]) => (
            <details key={question}>
              <summary>{question}</summary>
              <p>{reply}</p>
            </details>
          ))}
        </dd>
      </dl>
    </article>
  )
}

render(
  <div class="page">
    <PageTop home={home} tagline="For teachers" />
    <main class="class">
      <section class="class-about">
        <h2 class="display">Five lessons of ten minutes</h2>
        <p>
          Pupils open <a href="../">the course</a> on their own computers; nothing is installed, and
          nothing leaves the room. To serve it in your network, start it with{' '}
          <code>npm start -- --host</code>. A tick stays in the browser that reached the goal;
          nobody collects them.
        </p>
        <nav aria-label="Lessons">
          {course.map(({ number, title }) => (
            <a key={number} href={`#lesson-${number}`}>
              {number}. {title}
            </a>
          ))}
        </nav>
      </section>
      {course.map((lesson) => (
        <Guide key={lesson.number} lesson={lesson} />
      ))}
    </main>
    <PageFoot home={home} />
  </div>,
  document.getElementById('app')!,
)
