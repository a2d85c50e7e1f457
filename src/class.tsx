import { render } from 'preact'
import './ui/theme/theme.css'
import './ui/theme/class.css'
import { course } from '../demos/lessons/course.ts'
import { lessonAddress } from './ui/lesson/lesson.ts'
import { isDone, readProgress } from './ui/lesson/progress.ts'
import { PageFoot } from './ui/parts/page-foot.tsx'
import { PageTop } from './ui/parts/page-top.tsx'

/** The course: five lessons, and which of them this browser's person has done. */

const home = '../'

function Card({ lesson }: { lesson: (typeof course)[number] }) {
  const { number, title, about, goals } = lesson
  const progress = readProgress(number)
  const done = isDone(progress, goals.length)
  const state = done
    ? 'Done'
    : progress.predicted === null
      ? ''
      : `${progress.reached.length} of ${goals.length} goals reached`
  return (
    <li class="panel" data-done={done}>
      <h2>
        <span class="number" aria-hidden="true">
          {done ? '✓' : number}
        </span>
        <a href={home + lessonAddress(lesson)}>
          <span class="unseen">Lesson {number}: </span>
          {title}
        </a>
      </h2>
      <p>{about}</p>
      <p class="quiet">10 minutes{state && ` · ${state}`}</p>
    </li>
  )
}

render(
  <div class="page">
    <PageTop home={home} tagline="Class" />
    <main class="class">
      <section class="class-about">
        <h2 class="display">Five lessons on how machines learn together</h2>
        <p>
          Each opens a page that runs the real thing. Read the idea, say what you think will happen,
          then try it: a tick comes when you have reached a goal. Lessons 2 and 4 need others, or
          more tabs of your own.
        </p>
        <p>
          <a href="teacher/">For teachers: preparation, answers, questions</a>
        </p>
      </section>
      <ol class="lessons">
        {course.map((lesson) => (
          <Card key={lesson.number} lesson={lesson} />
        ))}
      </ol>
    </main>
    <PageFoot home={home} />
  </div>,
  document.getElementById('app')!,
)
