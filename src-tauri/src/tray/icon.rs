//! The icon in three shapes, told apart without any colour: a gate with a dot, with an exclamation
//! mark, with the two bars of a pause. It is drawn here, so that there is no file to keep in step.

use tauri::image::Image;

use super::menu::Mood;

/// Pixels on each side; panels draw it smaller.
const SIZE: u32 = 64;
/// How soft an edge is, in parts of the icon.
const EDGE: f32 = 1.0 / SIZE as f32;
/// How far the dark rim reaches around the light figure.
const RIM: f32 = 0.05;

pub fn of(mood: Mood) -> Image<'static> {
    let pixels = (0..SIZE * SIZE).flat_map(|at| {
        let place = |n: u32| (n as f32 + 0.5) / SIZE as f32;
        pixel(distance(mood, place(at % SIZE), place(at / SIZE)))
    });
    Image::new_owned(pixels.collect(), SIZE, SIZE)
}

/// A light figure with a dark rim can be seen on any panel. macOS draws a template in the colour
/// that fits, and looks at how opaque it is only.
fn pixel(distance: f32) -> [u8; 4] {
    let covered = |distance: f32| (0.5 - distance / EDGE).clamp(0.0, 1.0);
    let figure = covered(distance);
    if cfg!(target_os = "macos") {
        return [0, 0, 0, (figure * 255.0) as u8];
    }
    let grey = (figure * 245.0 + (1.0 - figure) * 30.0) as u8;
    [grey, grey, grey, (covered(distance - RIM) * 255.0) as u8]
}

/// How far a point is from the figure, in parts of the icon; negative within.
fn distance(mood: Mood, x: f32, y: f32) -> f32 {
    let (middle, post, line) = (0.5, 0.27, 0.055);
    // The arch: half a circle on two posts.
    let arch = if y < 0.44 {
        ((x - middle).hypot(y - 0.44) - post).abs() - line
    } else {
        bar(x, y, middle - post, 0.44, 0.84, line).min(bar(x, y, middle + post, 0.44, 0.84, line))
    };
    let threshold = bar(y, x, 0.86, 0.14, 0.86, line);
    let within = match mood {
        Mood::Well => (x - middle).hypot(y - 0.5) - 0.1,
        Mood::Attention => {
            bar(x, y, middle, 0.32, 0.52, 0.06).min((x - middle).hypot(y - 0.69) - 0.065)
        }
        Mood::Paused => bar(x, y, middle - 0.09, 0.36, 0.64, 0.045).min(bar(
            x,
            y,
            middle + 0.09,
            0.36,
            0.64,
            0.045,
        )),
    };
    arch.min(threshold).min(within)
}

/// How far (x, y) is from an upright bar at `at`, from `from` to `to`, `half` its width.
fn bar(x: f32, y: f32, at: f32, from: f32, to: f32, half: f32) -> f32 {
    (x - at).hypot(y - y.clamp(from, to)) - half
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOODS: [Mood; 3] = [Mood::Well, Mood::Attention, Mood::Paused];

    /// How many pixels look otherwise on a background of this grey.
    fn differing(one: &[u8], other: &[u8], background: f32) -> usize {
        let seen = |pixel: &[u8]| {
            let opaque = f32::from(pixel[3]) / 255.0;
            f32::from(pixel[0]) * opaque + background * (1.0 - opaque)
        };
        one.chunks(4)
            .zip(other.chunks(4))
            .filter(|(a, b)| (seen(a) - seen(b)).abs() > 100.0)
            .count()
    }

    #[test]
    fn the_three_shapes_are_told_apart_on_light_and_dark_panels() {
        let nothing = [0; (4 * SIZE * SIZE) as usize];
        for background in [0.0, 128.0, 255.0] {
            for (at, mood) in MOODS.into_iter().enumerate() {
                let icon = of(mood);
                assert!(differing(icon.rgba(), &nothing, background) > 300, "{mood:?} is seen");
                for other in &MOODS[at + 1..] {
                    let differing = differing(icon.rgba(), of(*other).rgba(), background);
                    assert!(differing > 80, "{mood:?} and {other:?} differ in {differing} pixels");
                }
            }
        }
    }
}
